/* For readers who use a keyboard or a screen reader: buttons have names, and what scrolls can be scrolled by keys. */
document.addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll("summary:not([aria-label])")) {
    const link = summary.closest("li")?.querySelector("a");
    if (!summary.textContent.trim() && link) summary.setAttribute("aria-label", `Pages below ${link.textContent.trim()}`);
  }
  const name = (selector, label) => {
    for (const node of document.querySelectorAll(selector)) node.setAttribute("aria-label", label);
  };
  name("button.copybtn", "Copy this cell");
  /* Measured whenever a frame gets another size, as it does when the box around it is unfolded. Once it has scrolled, keys
     can reach it for good: a frame that holds the focus must not lose it because the window is turned. */
  const frames = new ResizeObserver((changes) => {
    for (const { target: frame } of changes) {
      const scrolls = frame.scrollWidth > frame.clientWidth + 1 || frame.scrollHeight > frame.clientHeight + 1;
      if (scrolls) frame.setAttribute("tabindex", "0");
    }
  });
  const kinds = ":is(.cell_output, .output, .pst-scrollable-table-container, pre, div.math, mjx-container)";
  const watch = () => document.querySelectorAll(`.bd-article ${kinds}`).forEach((frame) => frames.observe(frame));
  watch();
  window.addEventListener("load", () => (window.MathJax?.startup?.promise || Promise.resolve()).then(watch));
});
