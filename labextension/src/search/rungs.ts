/**
 * Lays out the rungs of a search: a column for each rung, a dot for each trial that has reached it or
 * trains to it. Pure; does not draw.
 *
 *       1 epoch        4 epochs       16 epochs
 *         ▲               ▲              ◆        better
 *        ▲ ○             ▲ ○             ▷           ↑
 *       ○ ○ ○             ○
 *         ×                              (no value: the strip at the bottom)
 */
import type { ITrialRow, ISearchState, Mark } from '../model/state.js';
import { placeOn, roomForTicks, ticksOf } from '../model/scales.js';

export interface IDot {
  row: ITrialRow;
  rung: number;
  mark: Mark;
  /** The metric at this rung; the latest for a trial that has not reached it. */
  value: number | null;
  x: number;
  y: number;
}

export interface IColumn {
  bracket: number;
  rung: number;
  left: number;
  width: number;
}

export interface IRungsLayout {
  /** The left edge of the first column. */
  left: number;
  /** The lower edge of the headings. */
  top: number;
  columns: IColumn[];
  dots: IDot[];
  ticks: { y: number; label: string }[];
  /** The size of marks, smaller in narrow columns. */
  markSize: number;
  /** The y of trials without a value; null if there are none. */
  stripY: number | null;
}

export interface IRungsSize {
  width: number;
  height: number;
}

const TOP = 40;
/** The height of the names of several brackets, above their rungs. */
const BRACKET_NAME = 16;
const BOTTOM = 10;
const STRIP = 18;
/** Spreads consecutive ids, so that dots seldom cover each other. */
const GOLDEN = 0.618034;

/** The dots of one trial: at each rung it has reached, and at that which it trains to. */
export function trialDots(row: ITrialRow): Pick<IDot, 'rung' | 'mark' | 'value'>[] {
  return row.marks.map((mark, place) =>
    place < row.rungs.length
      ? { rung: place, mark, value: row.rungs[place] ?? null }
      : { rung: row.aim, mark, value: row.latest }
  );
}

/** Where in its columns a trial's dots are, from 0 to 1; `across` in Python. */
export function across(trialId: number): number {
  return 0.12 + 0.76 * ((trialId * GOLDEN) % 1);
}

export function layoutRungs(search: ISearchState, { width, height }: IRungsSize): IRungsLayout {
  const start = roomForTicks(search.rung_axis);
  const room = width - start;
  const brackets = search.brackets.map((one, bracket) =>
    one.rungs.map(({ left }, rung) => ({
      ...{ bracket, rung, left: start + room * left },
      width: room * search.rung_width
    }))
  );
  const columns = brackets.flat();
  const found = search.rows.flatMap(row => trialDots(row).map(dot => ({ ...dot, row })));
  const top = search.brackets.length > 1 ? TOP + BRACKET_NAME : TOP;
  const hasStrip = found.some(dot => dot.value === null);
  const bottom = height - BOTTOM - (hasStrip ? STRIP : 0);
  const y = (place: number): number => top + (bottom - top) * (1 - place);
  const stripY = hasStrip ? height - STRIP / 2 - 2 : null;
  const crowd = Math.max(1, ...countBy(found.map(dot => `${dot.row.bracket}:${dot.rung}`)));
  return {
    left: start,
    top,
    columns,
    markSize: Math.min(1, Math.max(0.6, Math.sqrt((columns[0]?.width ?? 0) / crowd))),
    stripY,
    ticks: ticksOf(search.rung_axis).map(({ place, label }) => ({ y: y(place), label })),
    dots: found.map(dot => {
      const column = brackets[dot.row.bracket ?? 0]?.[dot.rung] as IColumn;
      return {
        ...dot,
        x: column.left + column.width * across(dot.row.id),
        y: dot.value === null ? (stripY as number) : y(placeOn(search.rung_axis, dot.value))
      };
    })
  };
}

function countBy(keys: readonly string[]): number[] {
  const counts = new Map<string, number>();
  keys.forEach(key => counts.set(key, (counts.get(key) ?? 0) + 1));
  return [...counts.values()];
}

/** The dot nearest to a point, if one is near. */
export function nearestDot<T extends { x: number; y: number }>(
  dots: readonly T[],
  x: number,
  y: number,
  reach = 14
): T | null {
  let best: T | null = null;
  let distance = reach;
  for (const dot of dots) {
    const here = Math.hypot(dot.x - x, dot.y - y);
    if (here < distance) {
      best = dot;
      distance = here;
    }
  }
  return best;
}

/** The dot to which an arrow key moves: up and down within a column, else to the next column. */
export function nextDot(dots: readonly IDot[], from: IDot | null, key: string): IDot | null {
  const order = (a: IDot, b: IDot): number => a.y - b.y || a.x - b.x;
  if (from === null) {
    return dots.toSorted((a, b) => columnOf(b) - columnOf(a) || order(a, b))[0] ?? null;
  }
  const inColumn = (column: number): IDot[] =>
    dots.filter(dot => columnOf(dot) === column).sort(order);
  const here = inColumn(columnOf(from));
  const place = here.findIndex(dot => dot.row.id === from.row.id);
  switch (key) {
    case 'ArrowUp':
      return here[Math.max(0, place - 1)] ?? null;
    case 'ArrowDown':
      return here[Math.min(here.length - 1, place + 1)] ?? null;
    case 'Home':
      return here[0] ?? null;
    case 'End':
      return here.at(-1) ?? null;
    default:
      return nearestIn(dots, from, key === 'ArrowRight' ? 1 : -1);
  }
}

function nearestIn(dots: readonly IDot[], from: IDot, direction: number): IDot {
  const beyond = dots.filter(dot => (columnOf(dot) - columnOf(from)) * direction > 0);
  const columns = beyond.map(columnOf);
  const column = direction > 0 ? Math.min(...columns) : Math.max(...columns);
  const there = beyond.filter(dot => columnOf(dot) === column);
  const same = there.find(dot => dot.row.id === from.row.id);
  const [nearest] = there.sort((a, b) => Math.abs(a.y - from.y) - Math.abs(b.y - from.y));
  return same ?? nearest ?? from;
}

/** The index of a dot's column, in drawing order. */
function columnOf(dot: IDot): number {
  return (dot.row.bracket ?? 0) * 100 + dot.rung;
}
