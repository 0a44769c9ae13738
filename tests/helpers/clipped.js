// What is wider or higher than its box and cannot be scrolled to.
const wrong = [];
const page = document.documentElement;
if (page.scrollWidth > window.innerWidth) wrong.push(`the page is ${page.scrollWidth} wide, of ${window.innerWidth}`);
for (const e of document.querySelectorAll("td, th, .math-wrapper, div.math, figcaption, .toy, h1, h2, h3, p, summary")) {
  if (!e.checkVisibility() || e.closest("svg") || e.closest(".skip")) continue;
  const style = getComputedStyle(e);
  const hides = (overflow) => overflow === "hidden" || overflow === "clip";
  const tall = e.scrollHeight - e.clientHeight, wide = e.scrollWidth - e.clientWidth;
  if (style.display === "inline" || e.clientWidth === 0) continue;
  let scrolls = false;
  for (let at = e; at && at !== document.body; at = at.parentElement) {
    scrolls ||= ["auto", "scroll"].includes(getComputedStyle(at).overflowX);
  }
  if (wide > 1 && !scrolls) wrong.push(`${wide} px of ${e.tagName} are cut: ${e.textContent.trim().slice(0, 60)}`);
  if (tall > 1 && (hides(style.overflowY) || e.matches(".math-wrapper"))) {
    wrong.push(`${tall} px below ${e.tagName} are cut: ${e.textContent.trim().slice(0, 60)}`);
  }
}
return wrong;
