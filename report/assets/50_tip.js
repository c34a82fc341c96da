// What is known about one op, in words.

function waitInWords(node) {
  if (node.gap === 0) return 'no wait before it';
  const parts = [];
  const cause = node.cause ? `${node.cause.name} of rank ${node.cause.rank}` : null;
  if (node.dependency > 0) {
    const why = cause ? `until ${cause} was computed` :
        node.held                     ? `until the ${sumName(node.held)} was done` :
        node.kind === KIND.collective ? 'until every rank was there' :
        node.kind === KIND.rollback   ? 'until all that was sent to it had come' :
                                        'for the rank itself';
    parts.push(`${time(node.dependency)} ${why}`);
  }
  if (node.transfer > 0) {
    const what = node.dependency > 0 && cause ? 'it' : cause || 'its input';
    parts.push(`${time(node.transfer)} until ${what} had arrived`);
  }
  if (node.launch > 0) parts.push(`${time(node.launch)} to launch`);
  const first = node.index === 0 && cause ? ' (the pipeline fills)' : '';
  return parts.join(', ') + first;
}

// "sum of bucket 1 of stage 3"
function sumName(sum) {
  const bucket = sum.bucket < 0 ? '' : `bucket ${sum.bucket} of `;
  if (sum.kind === 3) return `reduction of iteration ${sum.iteration}`;
  if (sum.kind === 2) return `sum of the tied embedding, stage ${sum.stage}`;
  return `sum of ${bucket}stage ${sum.stage}`;
}

function sumInWords(run, rank, sum) {
  if (sum.kind === 0) return 'its gradients, over the data-parallel replicas';
  const others = run.sums
                     .map((sums, other) => [other, sums])
                     .filter(
                         ([other, sums]) => other !== rank &&
                             sums.some((s) => s.collective === sum.collective))
                     .map(([other]) => other);
  if (sum.kind === 3) return 'over all ranks: what the next validation waits for';
  const what = sum.kind === 1 ? 'its gradients' : 'the gradient of the embedding that they share';
  return `${what}, with rank ${others.join(', ')}`;
}

function tipOfSum(run, rank, sum) {
  const row = (name, value) =>
      element('tr', {}, element('th', {scope: 'row'}, name), element('td', {}, value));
  const table = element(
      'table', {}, row('start', exactTime(sum.start)), row('end', exactTime(sum.end)),
      row('takes', exactTime(sum.duration)),
      row('waited', sum.waited === 0 ? 'no' : exactTime(sum.waited) + ', for the other ranks'));
  if (sum.bytes > 0) table.append(row('bytes', bytes(sum.bytes)));
  return [
    element(
        'p', {class: 'tip-title'}, element('b', {}, sumName(sum)),
        ` on rank ${rank}` + (sum.iteration > 0 ? `, iteration ${sum.iteration}` : '')),
    element('p', {}, sumInWords(run, rank, sum)), table
  ];
}

function memoryLines(memory) {
  const sum = (categories) => categories.reduce((all, value) => all + value, 0);
  const line = (name, pick) => {
    const [before, during, after] = [pick(memory.before), pick(memory.during), pick(memory.after)];
    if (before === 0 && during === 0 && after === 0) return null;
    return [name, before, during, after];
  };
  const lines = DATA.memory_categories.map((name, c) => line(words(name), (m) => m[c]));
  return [line('live memory', sum), ...lines].filter((l) => l !== null);
}

function tipOf(node) {
  const row = (name, value) =>
      element('tr', {}, element('th', {scope: 'row'}, name), element('td', {colspan: 3}, value));
  const table = element(
      'table', {}, row('start', exactTime(node.start)), row('end', exactTime(node.end)),
      row('takes', exactTime(node.end - node.start)),
      row('waited', node.gap === 0 ? 'no' : exactTime(node.gap)));
  const lines = memoryLines(node.memory);
  if (lines.length > 0) {
    table.append(element(
        'tr', {class: 'head'}, element('th', {}, ''),
        ...['before', 'during', 'after'].map((name) => element('th', {scope: 'col'}, name))));
    for (const [name, ...values] of lines) {
      table.append(element(
          'tr', {}, element('th', {scope: 'row'}, name),
          ...values.map((value) => element('td', {}, bytes(value)))));
    }
  }
  const title = element(
      'p', {class: 'tip-title'}, element('b', {}, node.name),
      ` on rank ${node.rank}` + (node.iteration > 0 ? `, iteration ${node.iteration}` : ''));
  return [
    title, element('p', {}, node.what), table,
    node.gap === 0 ? '' : element('p', {class: 'tip-wait'}, 'Waited ' + waitInWords(node) + '.')
  ];
}

function spoken(node) {
  const live = memoryLines(node.memory)[0];
  return `${node.name} on rank ${node.rank}: ${node.what}. From ${time(node.start)} to ` +
      `${time(node.end)}, ${time(node.end - node.start)}. Waited: ${waitInWords(node)}.` +
      (live ? ` Live memory ${bytes(live[1])} before, ${bytes(live[3])} after.` : '');
}

// Beside the pointer, but never over the edge.
function showTip(children, x, y) {
  const tip = byId('tip');
  tip.replaceChildren(...children.filter((child) => child !== ''));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 18 + box.width > window.innerWidth ? x - 18 - box.width : x + 18;
  const top = Math.min(y + 14, window.innerHeight - box.height - 8);
  tip.style.left = Math.max(6, left) + 'px';
  tip.style.top = Math.max(6, top) + 'px';
}
const hideTip = () => {
  byId('tip').hidden = true;
};
