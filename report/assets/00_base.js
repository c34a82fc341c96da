// Numbers, elements, colours: what everything else here uses.

const DATA = JSON.parse(document.getElementById('data').textContent);
const RUNS = DATA.runs;
const PLAYED = RUNS.filter((run) => run.packed);

// Rounds as C++ does, halves to the even digit, so that a number reads the same wherever it stands;
// toFixed() alone rounds halves up.
function fixed(value, decimals) {
  const digits = Math.abs(value).toFixed(Math.min(100, decimals + 60));
  const cut = digits.indexOf('.') + 1 + decimals;
  const kept = digits.slice(0, cut).replace(/\.$/, '');
  const half = /^50*$/.test(digits.slice(cut).replace('.', '')) && /[02468]$/.test(kept);
  return (value < 0 ? '-' : '') + (half ? kept : Math.abs(value).toFixed(decimals));
}

// As the program prints them: four significant digits, binary units.
function fourDigits(value, units, carry) {
  let unit = 0;
  while (unit + 1 < units.length && Math.abs(value) >= (unit === 0 ? units[1][1] : carry)) {
    unit += 1;
    value /= units[unit][1];
  }
  const name = ' ' + units[unit][0];
  if (value === 0 || Math.abs(value) >= 999.95) return fixed(value, 0) + name;
  return Number(fixed(value, 3 - Math.floor(Math.log10(Math.abs(value))))) + name;
}
const TIME_UNITS = [['ns', 1], ['us', 1e3], ['ms', 1e3], ['s', 1e3]];
const BYTE_UNITS = [['B', 1], ['KiB', 1024], ['MiB', 1024], ['GiB', 1024], ['TiB', 1024]];
const time = (ns) => fourDigits(ns, TIME_UNITS, 999.95);
const bytes = (b) =>
    Math.abs(b) < 102400 ? b.toLocaleString('en') + ' B' : fourDigits(b, BYTE_UNITS, 1023.5);
// Of nothing, any share is none.
const share = (part, whole) => (whole === 0 ? 0 : part / whole);
const percent = (of) => fixed(100 * of, 1).replace(/^-0\.0$/, '0.0') + ' %';

// To the nanosecond, since neighbouring ops late in a long iteration share their first digits.
function exactTime(ns) {
  if (Math.abs(ns) < 1e3) return ns + ' ns';
  const [unit, size] = Math.abs(ns) < 1e6 ? ['us', 1e3] : ['ms', 1e6];
  return (ns / size).toFixed(Math.log10(size)).replace(/\.?0+$/, '') + ' ' + unit;
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== null && child !== ''));
  return made;
}
const byId = (id) => document.getElementById(id);
const words = (name) =>
    name.replaceAll('_', ' ').replace(/ for b$/, ' for B').replace(/ for w$/, ' for W');

const PASSES = ['F', 'B', 'W', 'BW'];
const PASS_WORDS = ['forward', 'input gradient', 'weight gradient', 'both gradients'];
// Of nodes; those that work on ops first.
const KIND = {
  op: 0,
  pair: 1,
  part: 2,
  dropped: 3,
  collective: 4,
  optimizer: 5,
  validation: 6,
  rollback: 7,
  other: 8
};
const KIND_NAMES = ['', '', '', '', '', 'optimizer', 'validation', 'rollback', 'other'];
const KIND_WORDS = [
  '', '', '', '', 'all ranks together', 'the optimizer steps',
  'the verdict on the parameters that the rank reads is there',
  'takes the rejected optimizer step back, and does it right',
  'neither an op nor a step of the tail'
];
const hasOp = (kind) => kind <= KIND.dropped;

// Of sums on communication lanes, and which lane each stands on.
const SUM_LANES = ['gradient sums', 'between ranks', 'validated reduction'];
const SUMS = [
  {lane: 0, look: 'bucket', legend: 'gradient bucket, summed over replicas'},
  {lane: 1, look: 'twin', legend: 'gradients of a stage, summed over its two ranks'},
  {lane: 1, look: 'tied', legend: 'tied embedding’s gradient, summed over both ends'},
  {lane: 2, look: 'verdict', legend: 'reduction that a validation waits for'}
];

// Colours come from the style sheet, so that a theme is one place.
const colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = [
    'paper', 'row', 'ink', 'faint', 'line', 'accent', 'f', 'b', 'w', 'bw', 'tail', 'coll',
    'transfer', 'limit', 'sum', 'verdict'
  ];
  for (const name of names) colours[name] = style.getPropertyValue('--' + name).trim();
  for (const name of DATA.memory_categories) {
    colours['m-' + name] = style.getPropertyValue('--m-' + name).trim();
  }
  colours.passes = [colours.f, colours.b, colours.w, colours.bw];
}

const rgbOf = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
function mix(hex, other, share) {
  const [a, b] = [rgbOf(hex), rgbOf(other)];
  const part = (i) => Math.round(a[i] + (b[i] - a[i]) * share).toString(16).padStart(2, '0');
  return '#' + part(0) + part(1) + part(2);
}

// A canvas as sharp as the screen. Returns its context, scaled to CSS pixels.
function contextOf(canvas, width, height) {
  const ratio = state.printing ? 3 : Math.min(window.devicePixelRatio || 1, 3);
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  canvas.style.height = height + 'px';
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const state = {
  printing: false,
  memoryRank: -1
};
const FONT = '"Inter", system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const GUTTER = 62;  // left of every plot: names of ranks and scales
