// Text whose colour is too near to what is behind it: its contrast is below the first argument.
const least = arguments[0];
const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const seen = new Map();
function rgba(colour) {
  if (!seen.has(colour)) {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = "#000";
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    seen.set(colour, [r, g, b, a / 255]);
  }
  return seen.get(colour);
}
const over = (top, below) => [0, 1, 2].map((i) => top[3] * top[i] + (1 - top[3]) * below[i]).concat(1);
const light = (c) => {
  const [r, g, b] = c.slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
function behind(e) {
  const layers = [];
  for (let at = e; at; at = at.parentElement) {
    const c = rgba(getComputedStyle(at).backgroundColor);
    if (c[3] > 0) layers.push(c);
    if (c[3] === 1) break;
  }
  const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches;
  return layers.reverse().reduce((below, top) => over(top, below), dark ? [0, 0, 0, 1] : [255, 255, 255, 1]);
}
const wrong = new Set();
const check = (e, colour, said) => {
  const background = behind(e), ink = over(rgba(colour), background);
  const [a, b] = [light(ink), light(background)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < least) wrong.add(`${ratio.toFixed(2)}: ${said}`);
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const e = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
  if (e.closest("svg, math, script, style, noscript, [aria-hidden=true]") || e.matches("[disabled], a.headerlink")) continue;
  check(e, getComputedStyle(e).color, `${e.tagName}.${e.className} ${walker.currentNode.textContent.trim().slice(0, 40)}`);
}
// letters of drawings: text, or shapes in a group that is one
for (const e of document.querySelectorAll("figure.drawing svg text, figure.drawing svg g[id*=text_] use")) {
  check(e, getComputedStyle(e).fill, `letters of ${e.closest("svg").getAttribute("aria-label").slice(0, 40)}`);
}
return [...wrong];
