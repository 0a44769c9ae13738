// What there is to play with. The numbers that this needs are in the element #toy-data.
const data = JSON.parse(document.getElementById("toy-data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);
document.documentElement.classList.add("scripted");

function element(parent, name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

// --- 1: widths in, reduced widths and parameters out

function reducedWidths(n) {
  const r = [n[0]];
  for (let i = 1; i < n.length - 1; i++) r.push(Math.min(n[i], r[i - 1] + 1));
  r.push(n[n.length - 1]);
  return r;
}

function parameters(n) {
  let count = 0;
  for (let i = 1; i < n.length; i++) count += n[i] * (n[i - 1] + 1);
  return count;
}

function parseWidths(text) {
  const parts = text.trim().split(/\s*[,;]\s*|\s+/);
  const n = parts.map((part) => (/^\d+$/.test(part) ? Number(part) : NaN));
  if (n.length < 2) throw new Error("A network has at least two widths, for example 1, 8, 16, 8, 1.");
  if (n.length > 100) throw new Error("More than a hundred widths are too many to be drawn.");
  const odd = parts.find((part, i) => !(n[i] >= 1 && n[i] <= 1e6));
  if (odd !== undefined) {
    throw new Error(`${odd === "" ? "Nothing" : odd} is not a width; a width is a whole number from 1 to a million.`);
  }
  return n;
}

// Columns as tall as the root of a width, grey as they were and blue as they are; funnels between them. The share
// says how far compression has come, layer by layer.
function drawFunnel(before, after, share) {
  const stage = byId("funnel"), count = before.length, pitch = 120, tall = 170, middle = 20 + tall / 2;
  const widest = Math.max(...before);
  const high = (n) => Math.max(4, tall * Math.sqrt(n / widest));
  const now = before.map((n, i) => {
    const done = Math.min(1, Math.max(0, share * (count - 1) - i + 1));
    return high(n) + (high(after[i]) - high(n)) * done * done * (3 - 2 * done);
  });
  stage.replaceChildren();
  stage.classList.remove("dim");
  stage.setAttribute("viewBox", `0 0 ${pitch * count} ${tall + 60}`);
  for (const [heights, fill, opacity] of [[before.map(high), "currentColor", 0.08], [now, "var(--accent)", 0.35]]) {
    for (let i = 0; i + 1 < count; i++) {
      const [a, b] = [heights[i] / 2, heights[i + 1] / 2], x = pitch * (i + 0.5) + 12, w = pitch - 24;
      element(stage, "path", { fill, "fill-opacity": opacity, d: `M${x} ${middle - a}c${w / 2} 0 ${w / 2} ${a - b} ${w} ${a - b}` +
        `v${2 * b}c${-w / 2} 0 ${-w / 2} ${a - b} ${-w} ${a - b}z` });
    }
  }
  before.forEach((n, i) => {
    const x = pitch * (i + 0.5);
    for (const [height, fill, opacity] of [[high(n), "currentColor", 0.18], [now[i], "var(--accent)", 1]]) {
      element(stage, "rect", { x: x - 12, y: middle - height / 2, width: 24, height, rx: Math.min(6, height / 2), fill, "fill-opacity": opacity });
    }
    if (count > 9) return;
    element(stage, "text", { x, y: tall + 46, "text-anchor": "middle", fill: "currentColor", "font-size": 15, "font-weight": 600 })
      .textContent = n === after[i] ? n.toLocaleString("en") : `${n.toLocaleString("en")} \u2192 ${after[i].toLocaleString("en")}`;
  });
}

// A slider for each hidden width; of more than eight there is the text alone.
let shown = [];
function showSliders(n) {
  shown = n;
  const box = byId("sliders");
  const hidden = n.length - 2 > 8 ? [] : n.slice(1, -1);
  if (box.children.length !== hidden.length) {
    box.replaceChildren(...hidden.map((_, i) => {
      const label = document.createElement("label"), slider = document.createElement("input");
      label.append(document.createElement("span"));
      Object.assign(slider, { type: "range", min: 0, max: 12, step: 0.25, id: `slider-${i}` });
      slider.addEventListener("input", () => {
        const now = [...shown];
        now[i + 1] = Math.round(2 ** Number(slider.value));
        byId("widths").value = now.join(", ");
        showWidths(1);
      });
      label.append(slider);
      return label;
    }));
  }
  hidden.forEach((width, i) => {
    const slider = box.children[i].querySelector("input");
    if (document.activeElement !== slider) slider.value = Math.log2(width);
    slider.setAttribute("aria-valuetext", `${width} wide`);
    box.children[i].querySelector("span").textContent = `hidden ${i + 1}: ${width.toLocaleString("en")}`;
  });
}

function showWidths(share) {
  const out = byId("widths-out");
  try {
    const n = parseWidths(byId("widths").value);
    const r = reducedWidths(n);
    const before = parameters(n), after = parameters(r);
    drawFunnel(n, r, share);
    showSliders(n);
    out.textContent =
      `(${n.join(", ")}) becomes (${r.join(", ")}): ` +
      `${before.toLocaleString("en")} parameters become ${after.toLocaleString("en")}, ` +
      (before > after ? `${(before / after).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} times fewer.` : "nothing is to be taken away.");
  } catch (error) {
    out.textContent = error.message;
    byId("funnel").classList.add("dim");
  }
}

// Under four seconds, and not at all for those who asked for less motion.
let squeezing = 0;
function squeeze() {
  const turn = ++squeezing, still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const began = performance.now();
  const draw = (now) => {
    if (turn !== squeezing) return;
    const share = still ? 1 : Math.min(1, Math.max(0, (now - began - 700) / 2600));
    showWidths(share);
    if (share < 1) requestAnimationFrame(draw);
  };
  draw(began);
}
byId("widths").addEventListener("input", () => {
  squeezing += 1;
  showWidths(1);
});
byId("squeeze-again").addEventListener("click", squeeze);
squeeze();

// --- 2: layer by layer, balls collapse

const { centres, radii, values, eps, reach } = data.cover;
const side = 31;
const colour = (v) => {
  const t = (v - data.cover.lowest) / (data.cover.highest - data.cover.lowest);
  return `hsl(${Math.round(230 - 215 * t)} 70% 52%)`;
};
const points = [];
for (let i = 0; i < side; i++) {
  for (let j = 0; j < side; j++) {
    const x = reach * (-1 + (2 * i) / (side - 1)), y = reach * (-1 + (2 * j) / (side - 1));
    const ball = centres.findIndex(([a, b], k) => Math.hypot(x - a, y - b) < radii[k]);
    points.push({ x, y, ball, f: data.cover.grid[i * side + j] });
  }
}
const stage = byId("collapse");
const border = 1.2 * reach;
stage.setAttribute("viewBox", `${-border} ${-border} ${2 * border} ${2 * border}`);
const discs = centres.map(([a, b], k) =>
  element(stage, "circle", { cx: a, cy: -b, r: radii[k], stroke: "currentColor", "stroke-width": 0.006 }));
for (const point of points) point.dot = element(stage, "circle", { r: 0.018 });
const layerSlider = byId("layers");
layerSlider.max = centres.length;

function showLayers() {
  const k = Number(layerSlider.value);
  discs.forEach((disc, i) => {
    disc.setAttribute("fill", i < k ? colour(values[i]) : "none");
    disc.setAttribute("fill-opacity", 0.25);
    disc.setAttribute("stroke-opacity", i < k ? 0.5 : 0.15);
  });
  let collapsed = 0, worst = 0;
  for (const point of points) {
    const taken = point.ball >= 0 && point.ball < k;
    const [x, y] = taken ? centres[point.ball] : [point.x, point.y];
    point.dot.setAttribute("cx", x);
    point.dot.setAttribute("cy", -y);
    point.dot.setAttribute("r", taken ? 0.05 : 0.018);
    point.dot.setAttribute("fill", taken ? colour(values[point.ball]) : "currentColor");
    if (taken) {
      collapsed += 1;
      worst = Math.max(worst, Math.abs(values[point.ball] - point.f));
    }
  }
  byId("layers-out").textContent = `After ${k} of ${centres.length} layers ${collapsed} of ${points.length} points have collapsed` +
    (collapsed ? `; among these the network is off by ${worst.toFixed(4)} at most (promised: below ${eps}).` : ".");
}
layerSlider.addEventListener("input", showLayers);
showLayers();

// --- 3: rotate a hidden layer

const net = data.network;
const sigmoid = (r) => 1 / (1 + Math.exp(-r));

function evaluate({ W1, b1, W2, b2 }, x) {
  const z = W1.map((w, i) => w * x + b1[i]);
  const r = Math.hypot(...z);
  const s = r > 0 ? sigmoid(r) / r : 0;
  return W2.reduce((sum, w, i) => sum + w * s * z[i], b2);
}

function rotated({ W1, b1, W2, b2 }, angle) {
  const c = Math.cos(angle), s = Math.sin(angle);
  const turn = ([a, b]) => [c * a - s * b, s * a + c * b];
  return { W1: turn(W1), b1: turn(b1), W2: turn(W2), b2 };
}

const samples = Array.from({ length: 121 }, (_, j) => -3 + j / 20);
const graph = byId("graph");
const planeX = (x) => 20 + ((x + 3) / 6) * 260;
const outputs = samples.map((x) => evaluate(net, x));
const top = Math.max(...outputs), bottom = Math.min(...outputs);
const planeY = (y) => 20 + ((top - y) / (top - bottom || 1)) * 160;
const path = (f) => "M" + samples.map((x) => `${planeX(x).toFixed(2)} ${planeY(f(x)).toFixed(2)}`).join("L");
element(graph, "path", { d: path((x) => evaluate(net, x)), fill: "none", stroke: "currentColor", "stroke-width": 6, opacity: 0.25 });
const curve = element(graph, "path", { fill: "none", stroke: "var(--warm)", "stroke-width": 2 });
const arrows = byId("arrows");
const size = 1.25 * Math.max(...[net.W1, net.b1, net.W2].map((v) => Math.hypot(...v)));
const shafts = ["var(--accent)", "var(--good)", "var(--warm)"].map((stroke) =>
  element(arrows, "line", { x1: 100, y1: 100, stroke, "stroke-width": 3, "stroke-linecap": "round" }));
element(arrows, "circle", { cx: 100, cy: 100, r: 3, fill: "currentColor" });
const row = (v) => v.map((x) => x.toFixed(4).padStart(8)).join(" ");

function showRotation() {
  const angle = (Number(byId("angle").value) * Math.PI) / 180;
  const turned = rotated(net, angle);
  [turned.W1, turned.b1, turned.W2].forEach((v, i) => {
    shafts[i].setAttribute("x2", 100 + (90 * v[0]) / size);
    shafts[i].setAttribute("y2", 100 - (90 * v[1]) / size);
  });
  curve.setAttribute("d", path((x) => evaluate(turned, x)));
  const gap = Math.max(...samples.map((x) => Math.abs(evaluate(turned, x) - evaluate(net, x))));
  byId("weights").textContent = `W1 = (${row(turned.W1)} )\nb1 = (${row(turned.b1)} )\nW2 = (${row(turned.W2)} )`;
  byId("angle-out").textContent =
    `Turned by ${byId("angle").value}°: outputs differ by ${gap === 0 ? "0" : gap.toExponential(1)} at most.`;
}
byId("angle").addEventListener("input", showRotation);
showRotation();
