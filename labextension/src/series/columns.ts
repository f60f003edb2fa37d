/** Aligns series on one x axis for plots, with gaps where nothing was measured; pure. */
import type { Column } from '../charts/curves.js';
import type { ISeries } from '../model/answers.js';

export interface IAligned {
  x: number[];
  /** Per series, its values at each x. */
  mid: Column[];
  low: Column[];
  high: Column[];
}

const GAP = 3; // a gap is so many times the usual distance of points

/** Align series, with x relative to `origin`. */
export function aligned(series: readonly ISeries[], origin = 0): IAligned {
  const [first, ...others] = series;
  if (first === undefined) {
    return { x: [], mid: [], low: [], high: [] };
  }
  const isSame = others.every(one => one === first || haveSameX(one.x, first.x));
  const xs = isSame ? first.x : union(series);
  const gaps = gapsOf(xs);
  const x = withGaps(xs, gaps, i => ((xs[i - 1] as number) + (xs[i] as number)) / 2);
  const put = (values: readonly Column[]): Column[] =>
    values.map(column => (gaps.length === 0 ? column : withGaps(column, gaps, () => null)));
  const spread = (name: 'low' | 'mid' | 'high'): Column[] =>
    put(series.map(one => (isSame ? one[name] : placed(one, name, xs))));
  return {
    x: origin === 0 ? x : x.map(value => value - origin),
    ...{ mid: spread('mid'), low: spread('low'), high: spread('high') }
  };
}

function haveSameX(one: readonly number[], other: readonly number[]): boolean {
  return one.length === other.length && one.every((x, i) => x === other[i]);
}

function union(series: readonly ISeries[]): number[] {
  return [...new Set(series.flatMap(one => one.x))].sort((a, b) => a - b);
}

/** The values of a series on the common axis: `undefined` between its points, `null` at gaps. */
function placed(one: ISeries, name: 'low' | 'mid' | 'high', xs: readonly number[]): Column {
  const own = new Map(one.x.map((x, i) => [x, one[name][i] as number]));
  const pauses = new Set(gapsOf(one.x).map(i => one.x[i - 1]));
  const column: Column = [];
  let isPausing = false;
  for (const x of xs) {
    const value = own.get(x);
    column.push(value ?? (isPausing ? null : undefined));
    isPausing = value === undefined ? isPausing : pauses.has(x);
  }
  return column;
}

/** Positions whose distance from the one before is much larger than usual. */
function gapsOf(xs: readonly number[]): number[] {
  const steps = xs.slice(1).map((x, i) => x - (xs[i] as number));
  const usual = [...steps].sort((a, b) => a - b)[steps.length >> 1] ?? 0;
  return steps.flatMap((step, i) => (step > GAP * usual ? [i + 1] : []));
}

function withGaps<T>(
  values: readonly T[],
  gaps: readonly number[],
  between: (i: number) => T
): T[] {
  if (gaps.length === 0) {
    return values as T[];
  }
  const kept: T[] = [];
  let from = 0;
  for (const gap of gaps) {
    kept.push(...values.slice(from, gap), between(gap));
    from = gap;
  }
  kept.push(...values.slice(from));
  return kept;
}
