// Witnesses after the first few are folded once their diagrams have been set up, and unfold for the printer.
(() => {
  const folded = [...document.querySelectorAll("details.folded")];
  const show = (details) => {
    const marked = details.open && details.querySelector(".marked"), pan = marked && marked.closest(".pan");
    if (pan) pan.scrollLeft += marked.getBoundingClientRect().x - pan.getBoundingClientRect().x - pan.clientWidth / 3;
  };
  for (const details of folded) {
    details.open = false;
    details.addEventListener("toggle", () => show(details));
  }
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = folded.filter((details) => !details.open);
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => { for (const details of opened) details.open = false; });
})();
