/* A figure of several panels would be a stamp on a phone: mark the wide ones, and the stylesheet lets them scroll. */
document.addEventListener("DOMContentLoaded", () => {
  for (const figure of document.querySelectorAll(".bd-article .cell_output img")) {
    const mark = () => figure.classList.toggle("wide-figure", figure.naturalWidth > 750);
    figure.complete ? mark() : figure.addEventListener("load", mark);
  }
});
