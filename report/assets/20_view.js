// The one time axis that all timelines share.

class View {
  constructor(length) {
    this.length = Math.max(length, 1);
    this.listeners = [];
    this.from = 0;
    this.to = this.length;
  }
  get span() {
    return this.to - this.from;
  }
  // Keeps the window inside the run, and wide enough for a few nanoseconds.
  show(from, to) {
    const span = Math.min(Math.max(to - from, 10), this.length);
    this.from = Math.min(Math.max(from, 0), this.length - span);
    this.to = this.from + span;
    for (const listener of this.listeners) listener();
  }
  fit() {
    this.show(0, this.length);
  }
  // `at`: the instant that stays where it is.
  zoom(factor, at = (this.from + this.to) / 2) {
    const span = Math.min(Math.max(this.span / factor, 10), this.length);
    const left = (at - this.from) / this.span;
    this.show(at - left * span, at + (1 - left) * span);
  }
  pan(time) {
    this.show(this.from + time, this.to + time);
  }
  inWords() {
    if (this.span >= this.length) return 'all ' + time(this.length);
    const [name, size] = unitOf(this.to);
    const digits = Math.max(0, 2 - Math.floor(Math.log10(this.span / size)));
    return `${(this.from / size).toFixed(digits)} to ${(this.to / size).toFixed(digits)} ${name}`;
  }
  reveal(from, to) {
    if (from >= this.from && to <= this.to) return;
    const middle = (from + to) / 2;
    const span = Math.max(this.span, (to - from) * 2);
    this.show(middle - span / 2, middle + span / 2);
  }
}

const unitOf =
    (t) => [['s', 1e9], ['ms', 1e6], ['us', 1e3]].find(([, size]) => t >= size) || ['ns', 1];

// 1, 2 or 5 times a power of ten, at least `value`.
function roundStep(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= value) || 10 * power;
}

// Ticks at round times; all labels in one unit, so that they can be compared.
function drawAxis(canvas, view, width) {
  const height = 26;
  const context = contextOf(canvas, width, height);
  const scale = (width - GUTTER) / view.span;
  const step = roundStep(90 / scale);
  const unit = unitOf(view.to);
  const decimals = Math.max(0, -Math.floor(Math.log10(step / unit[1]) + 1e-9));
  context.font = '11.5px ' + FONT;
  context.textBaseline = 'middle';
  context.fillStyle = colours.faint;
  context.strokeStyle = colours.line;
  context.textAlign = 'right';
  context.fillText('time, ' + unit[0], GUTTER - 8, 11);
  context.beginPath();
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = GUTTER + (t - view.from) * scale;
    context.moveTo(x, 20);
    context.lineTo(x, height);
    context.textAlign = x > width - 24 ? 'right' : x < GUTTER + 12 ? 'left' : 'center';
    context.fillText((t / unit[1]).toFixed(decimals), Math.min(x, width), 11);
  }
  context.moveTo(GUTTER, height - 0.5);
  context.lineTo(width, height - 0.5);
  context.stroke();
}
