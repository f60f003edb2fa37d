/** What differs in one cell or module, as a unified diff with its lines marked by sign and colour. */
import { h } from '../dom/dom.js';
import type { ICodeDifference, ISide } from '../model/state.js';

/** Differences of more lines, or more than a few of them, are shown on demand. */
const OPEN_LINES = 40;
const OPEN_FILES = 3;

export function codeDifference(
  { name, side, lines }: ICodeDifference,
  sides: readonly ISide[],
  numDifferences: number
): HTMLElement {
  const between = `${sides[0]?.label ?? ''} → ${sides[side]?.label ?? ''}`;
  return h(
    'details',
    { open: lines.length <= OPEN_LINES && numDifferences <= OPEN_FILES },
    h('summary', {}, name, h('span.det-quiet', {}, ` ${between}`)),
    h('pre.det-diff', { tabindex: 0 }, ...lines.map(line => markedLine(line)))
  );
}

function markedLine(line: string): HTMLElement {
  const isFile = line.startsWith('+++') || line.startsWith('---');
  const kind = isFile
    ? 'file'
    : ({ '+': 'added', '-': 'removed', '@': 'place' }[line[0] ?? ''] ?? 'same');
  return h('span', { 'data-kind': kind }, `${line}\n`);
}
