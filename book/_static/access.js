/* For readers who use a keyboard or a screen reader: buttons have names, and what scrolls can be scrolled by keys. */
document.addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll("summary:not([aria-label])")) {
    const link = summary.closest("li")?.querySelector("a");
    if (!summary.textContent.trim() && link) summary.setAttribute("aria-label", `Pages below ${link.textContent.trim()}`);
  }
  for (const button of document.querySelectorAll("button.copybtn")) {
    button.setAttribute("aria-label", "Copy this cell");
  }
  const frames = ".bd-article :is(.cell_output, .wide-frame, .pst-scrollable-table-container, pre, div.math, mjx-container)";
  const offer = () => {
    for (const frame of document.querySelectorAll(frames)) {
      const scrolls = frame.scrollWidth > frame.clientWidth || frame.scrollHeight > frame.clientHeight;
      scrolls ? frame.setAttribute("tabindex", "0") : frame.removeAttribute("tabindex");
    }
  };
  window.addEventListener("load", offer);
  window.addEventListener("resize", offer);
});
