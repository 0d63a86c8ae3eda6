/* On a phone, a figure of several panels would be a stamp, and a printed table that wraps loses its columns: mark
   both, and the stylesheet lets them scroll. */
document.addEventListener("DOMContentLoaded", () => {
  for (const figure of document.querySelectorAll(".bd-article .cell_output img")) {
    const mark = () => {
      figure.classList.toggle("wide-figure", figure.naturalWidth > 725);
      figure.style.setProperty("--drawn-width", `${figure.naturalWidth}px`);
    };
    figure.complete ? mark() : figure.addEventListener("load", mark);
  }
  for (const printed of document.querySelectorAll(".bd-article .cell_output pre")) {
    const columns = printed.textContent.match(/\S {2,}\S/g) || [];
    printed.classList.toggle("printed-table", columns.length > 1);
  }
});
