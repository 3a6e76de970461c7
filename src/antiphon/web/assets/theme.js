// In the head, before anything is painted: the theme that was chosen last, if the browser lets a page remember it.
try { const kept = localStorage.getItem("antiphon-theme"); if (kept) document.documentElement.dataset.theme = kept; } catch {}
