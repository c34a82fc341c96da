// Bars: what the step is made of, and where each rank's time goes. Elements, not drawings, so that
// they print sharply and can be read out; patterns and letters stand beside the colours.

const LETTERS = {
  busy: '',
  ideal: '',
  dependency: 'D',
  schedule: 'S',
  imbalance: 'I',
  transfer: 'X',
  memory: 'M',
  collective: 'C',
  optimizer: 'O',
  tail: 'T',
  launch: 'L'
};
const STALL_WORDS = {
  busy: 'in ops',
  dependency: 'its input is not computed yet: the bubble proper',
  imbalance: 'of such a wait, the share owed to a stage slower than the mean',
  transfer: 'computed, but not arrived',
  memory: 'only the memory limit keeps the next F back',
  collective: 'in or before a collective',
  optimizer: 'the tail, after the last op of every rank: step, barrier, sums of gradients',
  launch: 'starting ops',
};
const PART_WORDS = {
  ideal: 'the mean rank’s own work: its passes, nothing else',
  imbalance: 'the fullest rank’s work, above the mean',
  schedule: 'this order of ops, messages free',
  transfer: 'messages as they are',
  launch: 'starting each op',
  tail: 'what ending an iteration costs: ranks waiting for each other, sums, barrier, step',
};

function segment(kind, left, width, letter, negative = false) {
  const made = element('i', {class: `seg k-${kind}` + (negative ? ' negative' : '')}, letter);
  made.style.left = left + '%';
  made.style.width = width + '%';
  return made;
}

function legendOf(kinds, meanings) {
  return element('ul', {class: 'legend'}, ...kinds.map((kind) => {
    const swatch = element('i', {class: `swatch k-${kind}`, 'aria-hidden': 'true'}, LETTERS[kind]);
    return element('li', {}, swatch, element('b', {}, kind), ' ' + meanings[kind]);
  }));
}

class WaterfallView {
  constructor(host, runs) {
    this.runs = runs;
    this.parts = DATA.waterfall_parts.filter(
        (part, i) => part !== 'launch' || runs.some((run) => run.waterfall_ns[i] !== 0));
    this.most = Math.max(1, ...runs.map((run) => {
      let sum = 0;
      return Math.max(...run.waterfall_ns.map((value) => (sum += value)));
    }));
    this.detail = element('div', {class: 'steps', 'aria-live': 'polite'});
    this.list = element('div', {class: 'overview', role: 'group', 'aria-label': 'Schedules'});
    for (const run of runs) this.list.append(this.row(run));
    host.append(legendOf(this.parts, PART_WORDS), this.list, this.detail);
    this.select(runs.find((run) => run.advised) || runs[0]);
  }

  // Calls `visit` with each part's name, value, and where it begins and ends.
  eachPart(run, visit) {
    let sum = 0;
    DATA.waterfall_parts.forEach((name, i) => {
      const value = run.waterfall_ns[i];
      visit(name, value, Math.min(sum, sum + value), Math.abs(value));
      sum += value;
    });
  }

  row(run) {
    const bar = element('span', {class: 'bar'});
    const told = [];
    this.eachPart(run, (name, value, from, length) => {
      if (value !== 0) told.push(`${name} ${time(value)}`);
      if (length === 0) return;
      const width = 100 * length / this.most;
      bar.append(segment(
          name, 100 * from / this.most, width, width > 2.2 ? LETTERS[name] : '', value < 0));
    });
    const button = element(
        'button', {
          type: 'button',
          'aria-pressed': 'false',
          'aria-label': `${run.schedule}: step ${time(run.step_ns)}; ${told.join(', ')}`
        },
        element('span', {class: 'name'}, run.schedule, run.advised ? ' ★' : ''), bar,
        element('span', {class: 'value'}, time(run.step_ns)));
    button.addEventListener('click', () => this.select(run));
    return button;
  }

  // Its bars reach as far as the largest sum of its own.
  select(run) {
    let most = 1;
    this.eachPart(run, (name, value, from, length) => {
      most = Math.max(most, from + length);
    });
    this.runs.forEach(
        (other, i) => this.list.children[i].setAttribute('aria-pressed', String(other === run)));
    const body = element('tbody');
    const add = (name, meaning, value, from, length, sign) => {
      const bar = element('span', {class: 'bar'});
      if (length > 0) {
        bar.append(
            segment(name, 100 * from / most, Math.max(0.15, 100 * length / most), '', value < 0));
      }
      body.append(element(
          'tr', {class: name === 'step' ? 'sum' : null},
          element('th', {scope: 'row'}, name, element('small', {}, meaning)),
          element('td', {class: 'wide'}, bar),
          element(
              'td', {'data-part': name, 'data-value': String(value)},
              (sign && value > 0 ? '+' : '') + time(value).replace('-', '−')),
          element('td', {}, percent(share(value, run.step_ns)))));
    };
    this.eachPart(run, (name, value, from, length) => {
      if (!this.parts.includes(name)) return;
      add(name, PART_WORDS[name], value, from, length, name !== 'ideal');
    });
    add('step', 'what training feels', run.step_ns, 0, run.step_ns, false);
    this.detail.replaceChildren(element(
        'table', {},
        element('caption', {}, element('b', {}, run.schedule), ', from the ideal to the real step'),
        element(
            'thead', {},
            element(
                'tr', {}, element('th', {scope: 'col'}, 'part'),
                element('th', {scope: 'col', class: 'wide'}, ''),
                element('th', {scope: 'col'}, 'adds'), element('th', {scope: 'col'}, 'of step'))),
        body));
  }
}

// One card a schedule, one bar a rank.
function stallCards(host, runs) {
  const kinds = [
    'busy',
    ...DATA.stall_categories.filter(
        (_, i) => runs.some((run) => run.stalls_ns.some((stalls) => stalls[i] > 0)))
  ];
  const longest = Math.max(1, ...runs.map((run) => run.makespan_ns));
  const valuesOf = (run, rank) => kinds.map(
      (kind) =>
          (kind === 'busy' ? run.busy_ns[rank] :
                             run.stalls_ns[rank][DATA.stall_categories.indexOf(kind)]));
  host.append(legendOf(kinds, STALL_WORDS));
  const cards = element('div', {class: 'cards'});
  for (const run of runs) cards.append(stallCard(run, kinds, longest, valuesOf));
  host.append(cards);
}

function stallCard(run, kinds, longest, valuesOf) {
  const ranks = run.busy_ns.length;
  const size = ranks <= 8 ? 'tall' : ranks <= 24 ? 'middle' : 'flat';
  const bars = element('div', {class: 'ranks ' + size});
  const every = size === 'flat' ? Math.ceil(ranks / 16) : 1;
  for (let rank = 0; rank < ranks; ++rank) {
    const values = valuesOf(run, rank);
    const told = kinds.map((kind, i) => `${kind} ${time(values[i])}`).join(', ');
    const bar = element('span', {class: 'bar', role: 'img', 'aria-label': `rank ${rank}: ${told}`});
    let from = 0;
    values.forEach((value, i) => {
      const width = 100 * value / longest;
      if (value > 0) {
        const letter = width > 4 && size !== 'flat' ? LETTERS[kinds[i]] : '';
        bar.append(segment(kinds[i], from, width, letter));
      }
      from += width;
    });
    const point = (event) =>
        showTip(stallTip(run, rank, kinds, values), event.clientX, event.clientY);
    bar.addEventListener('pointermove', point);
    bar.addEventListener('pointerleave', hideTip);
    bars.append(
        element(
            'span', {class: 'rank', 'aria-hidden': 'true'}, rank % every === 0 ? String(rank) : ''),
        bar);
  }
  const numbers = element('details', {}, element('summary', {}, 'numbers'));
  numbers.addEventListener('toggle', () => {
    if (numbers.children.length === 1) numbers.append(stallTable(run, kinds, valuesOf));
  });
  return element(
      'figure', {class: 'card', 'data-schedule': run.schedule},
      element(
          'figcaption', {}, element('h3', {}, run.schedule),
          element(
              'span', {class: 'fact'}, 'idle ', element('b', {}, percent(run.bubble_fraction)))),
      bars, numbers);
}

function stallTip(run, rank, kinds, values) {
  const table = element('table', {});
  kinds.forEach((kind, i) => {
    if (values[i] === 0) return;
    table.append(element(
        'tr', {}, element('th', {scope: 'row'}, kind), element('td', {}, exactTime(values[i])),
        element('td', {}, percent(share(values[i], run.makespan_ns)))));
  });
  table.append(element(
      'tr', {class: 'sum'}, element('th', {scope: 'row'}, 'makespan'),
      element('td', {}, exactTime(run.makespan_ns)), element('td', {}, '')));
  return [
    element('p', {class: 'tip-title'}, element('b', {}, run.schedule), ` rank ${rank}`), table
  ];
}

function stallTable(run, kinds, valuesOf) {
  const head = element(
      'tr', {}, element('th', {scope: 'col'}, 'rank'),
      ...kinds.map((kind) => element('th', {scope: 'col'}, kind)));
  const rows = run.busy_ns.map(
      (_, rank) => element(
          'tr', {}, element('th', {scope: 'row'}, String(rank)),
          ...valuesOf(run, rank).map(
              (value) => element('td', {'data-value': String(value)}, time(value)))));
  return element(
      'div', {
        class: 'scroll',
        tabindex: '0',
        role: 'region',
        'aria-label': `Time of each rank, ${run.schedule}`
      },
      element('table', {}, element('thead', {}, head), element('tbody', {}, ...rows)));
}
