// A radial network with the squashing function: what it gives, how it learns, how it is compressed. A network is
// { widths, W, b } with a row-major array of weights and one of biases for each layer; all numbers are doubles.

function makeNetwork(widths, random) {
  const W = [], b = [];
  for (let i = 1; i < widths.length; i++) {
    const scale = 2 / Math.sqrt(widths[i - 1]);
    W.push(Float64Array.from({ length: widths[i] * widths[i - 1] }, () => scale * normal(random)));
    b.push(Float64Array.from({ length: widths[i] }, () => 0.5 * normal(random)));
  }
  return { widths: [...widths], W, b };
}

// Uniform numbers on [0, 1) from a seed, the same in every browser.
function uniform(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function normal(random) {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

// h(r)/r for h(r) = r^2/(r^2 + 1), and its derivative.
const factor = (r) => r / (r * r + 1);
const factorSlope = (r) => (1 - r * r) / ((r * r + 1) * (r * r + 1));

// All layers of one sample: before and after the activation, and the norms.
function forward(net, x) {
  const outs = [x], norms = [];
  const last = net.W.length - 1;
  for (let i = 0; i <= last; i++) {
    const n = net.widths[i], m = net.widths[i + 1], W = net.W[i], input = outs[i];
    const z = new Float64Array(m);
    let square = 0;
    for (let k = 0; k < m; k++) {
      let sum = net.b[i][k];
      for (let j = 0; j < n; j++) sum += W[k * n + j] * input[j];
      z[k] = sum;
      square += sum * sum;
    }
    if (i < last) {
      const r = Math.sqrt(square), f = factor(r);
      norms.push({ z, r });
      outs.push(z.map((v) => f * v));
    } else {
      outs.push(z);
    }
  }
  return { outs, norms };
}

const evaluateNetwork = (net, x) => forward(net, x).outs[net.W.length];

// One step of Adam on the mean square of (output - target); the state is kept in `memory`. Gives the loss.
function step(net, samples, memory, rate) {
  const dW = net.W.map((W) => new Float64Array(W.length)), db = net.b.map((b) => new Float64Array(b.length));
  let loss = 0;
  for (const { x, y } of samples) {
    const { outs, norms } = forward(net, x);
    const error = outs[net.W.length][0] - y;
    loss += (error * error) / samples.length;
    let back = Float64Array.of((2 * error) / samples.length);
    for (let i = net.W.length - 1; i >= 0; i--) {
      const n = net.widths[i], m = net.widths[i + 1], W = net.W[i];
      if (i < net.W.length - 1) {
        const { z, r } = norms[i];
        let along = 0;
        for (let k = 0; k < m; k++) along += z[k] * back[k];
        const f = factor(r), g = r > 0 ? (factorSlope(r) * along) / r : 0;
        back = back.map((v, k) => f * v + g * z[k]);
      }
      const before = new Float64Array(n);
      for (let k = 0; k < m; k++) {
        db[i][k] += back[k];
        for (let j = 0; j < n; j++) {
          dW[i][k * n + j] += back[k] * outs[i][j];
          before[j] += W[k * n + j] * back[k];
        }
      }
      back = before;
    }
  }
  memory.t = (memory.t || 0) + 1;
  memory.m ||= [...net.W, ...net.b].map((p) => new Float64Array(p.length));
  memory.v ||= [...net.W, ...net.b].map((p) => new Float64Array(p.length));
  const first = rate / (1 - 0.9 ** memory.t), second = Math.sqrt(1 - 0.999 ** memory.t);
  [...dW, ...db].forEach((gradient, at) => {
    const p = at < dW.length ? net.W[at] : net.b[at - dW.length], m = memory.m[at], v = memory.v[at];
    for (let k = 0; k < p.length; k++) {
      m[k] = 0.9 * m[k] + 0.1 * gradient[k];
      v[k] = 0.999 * v[k] + 0.001 * gradient[k] * gradient[k];
      p[k] -= (first * m[k]) / (Math.sqrt(v[k]) / second + 1e-8);
    }
  });
  return loss;
}

// A = QR for a matrix of n rows and m columns, by Householder's reflections: Q has k = min(n, m) columns.
function thinQR(A, n, m) {
  const R = Float64Array.from(A), k = Math.min(n, m), vectors = [];
  for (let c = 0; c < k; c++) {
    const v = new Float64Array(n);
    let square = 0;
    for (let r = c; r < n; r++) square += R[r * m + c] ** 2;
    for (let r = c; r < n; r++) v[r] = R[r * m + c];
    v[c] += (v[c] < 0 ? -1 : 1) * Math.sqrt(square);
    let size = 0;
    for (let r = c; r < n; r++) size += v[r] * v[r];
    vectors.push({ v, size });
    reflect(R, v, size, n, m, c);
  }
  const Q = new Float64Array(n * k);
  for (let c = 0; c < k; c++) Q[c * k + c] = 1;
  for (let c = k - 1; c >= 0; c--) reflect(Q, vectors[c].v, vectors[c].size, n, k, c);
  return { Q, R: R.slice(0, k * m), k };
}

function reflect(M, v, size, n, m, first) {
  if (size === 0) return;
  for (let c = 0; c < m; c++) {
    let along = 0;
    for (let r = first; r < n; r++) along += v[r] * M[r * m + c];
    for (let r = first; r < n; r++) M[r * m + c] -= (2 * along * v[r]) / size;
  }
}

// The paper's Algorithm 1: [b | W] = QR, the layer becomes R, the next one reads through Q.
function compressNetwork(net) {
  const widths = [net.widths[0]], W = [], b = [];
  let reads = net.W[0];
  for (let i = 0; i < net.W.length; i++) {
    const n = net.widths[i + 1], m = widths[i];
    if (i === net.W.length - 1) {
      widths.push(n);
      W.push(Float64Array.from(reads));
      b.push(Float64Array.from(net.b[i]));
      break;
    }
    const A = new Float64Array(n * (m + 1));
    for (let r = 0; r < n; r++) {
      A[r * (m + 1)] = net.b[i][r];
      for (let c = 0; c < m; c++) A[r * (m + 1) + c + 1] = reads[r * m + c];
    }
    const { Q, R, k } = thinQR(A, n, m + 1);
    widths.push(k);
    b.push(Float64Array.from({ length: k }, (_, r) => R[r * (m + 1)]));
    W.push(Float64Array.from({ length: k * m }, (_, at) => R[Math.floor(at / m) * (m + 1) + (at % m) + 1]));
    const following = net.W[i + 1], rows = net.widths[i + 2];
    reads = new Float64Array(rows * k);
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < k; c++) {
        let sum = 0;
        for (let j = 0; j < n; j++) sum += following[r * n + j] * Q[j * k + c];
        reads[r * k + c] = sum;
      }
    }
  }
  return { widths, W, b };
}
