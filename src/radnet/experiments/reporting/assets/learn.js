// --- a wide network learns which points are orange, and is compressed on a click

const WIDE = [2, 24, 24, 24, 1], GRID = 64, REACH = 1.2, POINTS = 240;
const learn = { random: uniform(7), samples: [], net: null, memory: {}, shipped: null, wide: false, running: 0, goal: 600, epochs: 0 };
const cursor = { x: 0, y: 0, seen: false };
const shapes = {
  ring: (x, y) => Math.abs(Math.hypot(x, y) - 0.7) < 0.25,
  wave: (x, y) => y > 0.5 * Math.sin(3 * x),
  heart: (x, y) => {
    const a = 1.2 * x, b = 1.2 * y + 0.1, c = a * a + b * b - 0.6;
    return c * c * c - a * a * b * b * b < 0;
  },
};
const canvas = byId("learn-canvas"), pen = canvas.getContext("2d");

function startAnew() {
  learn.random = uniform(7);
  learn.net = makeNetwork(WIDE, learn.random);
  Object.assign(learn, { memory: {}, shipped: null, running: 0, goal: 600, epochs: 0, samples: [] });
  const shape = shapes[byId("learn-shape").value];
  for (let k = 0; shape && k < POINTS; k++) {
    const x = REACH * (2 * learn.random() - 1), y = REACH * (2 * learn.random() - 1);
    learn.samples.push({ x: Float64Array.of(x, y), y: shape(x, y) ? 1 : -1 });
  }
  byId("learn-train").textContent = "Train";
  show(shape ? "Ready to train." : "Draw points of both colours, then train.");
}

// What a network says at every place of the square, a number each.
function picture(net) {
  const values = new Float64Array(GRID * GRID), x = new Float64Array(2);
  for (let i = 0; i < GRID * GRID; i++) {
    x[0] = REACH * (((i % GRID) + 0.5) / (GRID / 2) - 1);
    x[1] = REACH * (1 - (Math.floor(i / GRID) + 0.5) / (GRID / 2));
    values[i] = evaluateNetwork(net, x)[0];
  }
  return values;
}

function show(said) {
  const image = pen.createImageData(GRID, GRID), values = picture((!learn.wide && learn.shipped) || learn.net);
  byId("learn-other").hidden = !learn.shipped;
  values.forEach((v, i) => {
    const strength = 60 + 100 * Math.min(1, Math.abs(v));
    image.data.set(v > 0 ? [230, 140, 50, strength] : [60, 120, 200, strength], 4 * i);
  });
  pen.putImageData(image, 0, 0);
  for (const { x, y } of learn.samples) {
    pen.fillStyle = y > 0 ? "#a84300" : "#123a80";
    pen.fillRect(Math.round((x[0] / REACH + 1) * GRID / 2 - 0.5), Math.round((1 - x[1] / REACH) * GRID / 2 - 0.5), 1, 1);
  }
  if (cursor.seen) {
    pen.fillStyle = "#000";
    const [i, j] = [Math.round((cursor.x / REACH + 1) * GRID / 2 - 0.5), Math.round((1 - cursor.y / REACH) * GRID / 2 - 0.5)];
    for (const [a, b] of [[-2, 0], [2, 0], [0, -2], [0, 2]]) pen.fillRect(i + a, j + b, 1, 1);
  }
  byId("learn-out").textContent = said;
}

function trained() {
  const right = learn.samples.filter(({ x, y }) => evaluateNetwork(learn.net, x)[0] * y > 0).length;
  const of = learn.samples.length;
  return `After ${learn.epochs} steps ${right} of ${of} points are right. ` +
    `Widths (${WIDE.join(", ")}), ${parameters(WIDE).toLocaleString("en")} parameters.`;
}

// Some steps, as the button does them on every frame.
function trainFor(steps) {
  for (let k = 0; k < steps && learn.samples.length; k++) {
    step(learn.net, learn.samples, learn.memory, 0.02 / (1 + learn.epochs / 400));
    learn.epochs += 1;
  }
  learn.shipped = null;
  show(trained());
}

// One loop at a time: what runs has a number, and stops when that is another.
let loops = 0;
function toggleTraining() {
  if (!learn.samples.length) {
    show("There is nothing to learn yet: draw points of both colours.");
    return;
  }
  if (learn.running) {
    stopTraining();
    return;
  }
  if (learn.epochs >= learn.goal) learn.goal = learn.epochs + 600;
  const turn = ++loops;
  learn.running = turn;
  byId("learn-train").textContent = "Stop";
  const frame = () => {
    if (learn.running !== turn) return;
    trainFor(4);
    if (learn.epochs >= learn.goal) stopTraining();
    else requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

function stopTraining() {
  learn.running = 0;
  byId("learn-train").textContent = learn.epochs ? "Train on" : "Train";
}

function compressLearned() {
  stopTraining();
  learn.wide = false;
  byId("learn-other").textContent = "Show the wide one";
  const before = picture(learn.net);
  learn.shipped = compressNetwork(learn.net);
  const after = picture(learn.shipped);
  const gap = Math.max(...before.map((v, i) => Math.abs(v - after[i])));
  const changed = before.filter((v, i) => v > 0 !== after[i] > 0).length;
  const count = parameters(learn.shipped.widths);
  show(`Compressed to (${learn.shipped.widths.join(", ")}): ${parameters(WIDE).toLocaleString("en")} parameters became ` +
    `${count}. ${changed} of ${before.length.toLocaleString("en")} places changed colour; ` +
    `outputs differ by ${gap === 0 ? "0" : gap.toExponential(1)} at most.`);
}

function drawPoint(event) {
  if (event.type === "pointermove" && !event.buttons) return;
  const box = canvas.getBoundingClientRect();
  const x = REACH * ((2 * (event.clientX - box.left)) / box.width - 1);
  const y = REACH * (1 - (2 * (event.clientY - box.top)) / box.height);
  cursor.seen = false;
  addPoint(x, y);
}

function addPoint(x, y) {
  if (Math.abs(x) <= REACH && Math.abs(y) <= REACH && learn.samples.length < 2000) {
    learn.samples.push({ x: Float64Array.of(x, y), y: Number(byId("learn-colour").value) });
  }
  learn.shipped = null;
  show(`${learn.samples.length} ${learn.samples.length === 1 ? "point" : "points"}.`);
}

function drawByKey(event) {
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  if (event.key === " ") {
    addPoint(cursor.x, cursor.y);
  } else if (moves[event.key]) {
    const inside = (v) => Math.max(-REACH, Math.min(REACH, v));
    cursor.x = inside(cursor.x + (4 * REACH / GRID) * moves[event.key][0]);
    cursor.y = inside(cursor.y + (4 * REACH / GRID) * moves[event.key][1]);
    cursor.seen = true;
    show(byId("learn-out").textContent);
  } else {
    return;
  }
  event.preventDefault();
}

function showOther() {
  learn.wide = !learn.wide;
  byId("learn-other").textContent = learn.wide ? "Show the small one" : "Show the wide one";
  show(byId("learn-out").textContent);
}

canvas.addEventListener("pointerdown", drawPoint);
canvas.addEventListener("pointermove", drawPoint);
canvas.addEventListener("keydown", drawByKey);
byId("learn-other").addEventListener("click", showOther);
byId("learn-train").addEventListener("click", toggleTraining);
byId("learn-compress").addEventListener("click", compressLearned);
byId("learn-again").addEventListener("click", startAnew);
byId("learn-shape").addEventListener("change", startAnew);
startAnew();
