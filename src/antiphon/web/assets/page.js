// no line ends between a number and its unit
const keptTogether = (text) => String(text).replace(/(\d) (?=(?:ns|µs|ms|s|min|h|B|kB|MB|GB)\b)/g, "$1\u00a0");
// The light/dark switch: follows the system until it is pressed, then remembers.
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const show = () => { button.textContent = dark() ? "☀ Light theme" : "☾ Dark theme"; };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("antiphon-theme", root.dataset.theme); } catch {}
    show();
  });
  system.addEventListener("change", show);
  button.hidden = false;
  show();
})();
