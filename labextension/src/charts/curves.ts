/** Aligns, smooths and reads curves; pure. */
import type { IChart, IChartSeries } from '../model/state.js';

/** A series on a common x axis: `undefined` without a point, `null` for a value that is not finite. */
export type Column = (number | null | undefined)[];
/** Parallel columns: the steps, then one per series. */
export type Columns = [number[], ...Column[]];

/** Points of a curve, in units of the x axis. */
export type IPoints = Pick<IChartSeries, 'steps' | 'values'>;

/** Align curves with points at different steps on a common x axis. */
export function toColumns(series: readonly IPoints[]): Columns {
  const steps = [...new Set(series.flatMap(one => one.steps))].sort((a, b) => a - b);
  const places = new Map(steps.map((step, place) => [step, place]));
  const columns = series.map(one => {
    const column = new Array<number | null | undefined>(steps.length).fill(undefined);
    one.steps.forEach((step, i) => {
      column[places.get(step) as number] = one.values[i] ?? null;
    });
    return column;
  });
  return [steps, ...columns];
}

/** Indices of values with gaps on both sides, which a line would not show. */
export function lonePlaces(column: Column): number[] {
  const lone: number[] = [];
  let before: number | null = null; // the value of the point before `place`
  let place = -1;
  const note = (after: number | null): void => {
    if (place >= 0 && column[place] !== null && before === null && after === null) {
      lone.push(place);
    }
  };
  for (let i = 0; i < column.length; i += 1) {
    const value = column[i];
    if (value !== undefined) {
      note(value);
      before = place < 0 ? null : (column[place] as number | null);
      place = i;
    }
  }
  note(null);
  return lone;
}

/**
 * Average a curve over its neighbourhood, about `span` steps to either side; gaps stay gaps.
 *
 * Points of a sampled curve are not evenly spaced, so each counts by its distance in steps. The
 * past and the future are averaged alike: leaning on the past alone would draw the curve late.
 */
export function smoothed(one: IPoints, span: number): (number | null)[] {
  const past = decayingSums(one.values, one.steps, span);
  const future = decayingSums(one.values.toReversed(), one.steps.toReversed(), span).reverse();
  return one.values.map((value, i) => {
    if (value === null) {
      return null;
    }
    const [pastSum, pastWeight] = past[i] as [number, number];
    const [futureSum, futureWeight] = future[i] as [number, number];
    return (pastSum + futureSum - value) / (pastWeight + futureWeight - 1);
  });
}

/** At each point: the sum of the values so far, and of their weights, which fade with distance. */
function decayingSums(
  values: readonly (number | null)[],
  steps: readonly number[],
  span: number
): [number, number][] {
  let sum = 0;
  let weight = 0;
  return values.map((value, i) => {
    const keep = i === 0 ? 0 : Math.exp(-Math.abs(at(steps, i) - at(steps, i - 1)) / span);
    sum = sum * keep + (value ?? 0);
    weight = weight * keep + (value === null ? 0 : 1);
    return [sum, weight];
  });
}

function at(steps: readonly number[], place: number): number {
  return steps[place] as number;
}

/** The last value of a column at or before an index; -1: of the whole column. */
export function valueBefore(column: Column, place: number): number | null {
  let i = place < 0 ? column.length - 1 : place;
  while (i > 0 && column[i] === undefined) {
    i -= 1;
  }
  return column[i] ?? null;
}

/** Curves of fewer points are not smoothed. */
const SMOOTH_FROM = 50;

/** The half width of smoothing, as a share of the x axis. */
const SMOOTH_SHARE = 1 / 60;

/**
 * The half width of smoothing in units of the x axis; 0 if no curve is dense. All curves have the
 * same width, long and short: only curves that were averaged alike can be compared.
 */
export function smoothingSpan({ series }: IChart): number {
  const lines = series.filter(one => one.kind === 'line' && !one.is_faint);
  return lines.some(isDense) ? SMOOTH_SHARE * lengthOf(lines) : 0;
}

/** Whether a curve has so many points that it is smoothed. */
export function isDense({ steps }: Pick<IPoints, 'steps'>): boolean {
  return steps.length >= SMOOTH_FROM;
}

/** The length from the first point of all curves to the last one. */
export function lengthOf(curves: readonly Pick<IPoints, 'steps'>[]): number {
  const some = curves.filter(({ steps }) => steps.length > 0);
  const ends = some.map(({ steps }) => steps.at(-1) as number);
  return Math.max(0, Math.max(...ends) - Math.min(...some.map(({ steps }) => at(steps, 0))));
}

/** The index of the last point at or before `step`; -1 if the curve begins later. */
export function placeAt(one: IChartSeries, step: number): number {
  let low = 0;
  let high = one.steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((one.steps[middle] as number) <= step) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

/** At most `limit` steps of a chart for a table, including the first and the last. */
export function tableSteps(chart: IChart, limit: number): number[] {
  const sparse = chart.series.filter(one => one.kind === 'points');
  const [steps] = toColumns(sparse.length > 0 ? sparse : chart.series);
  return spaced(steps, limit);
}

/** At most `limit` of these, evenly spaced, including the first and the last. */
export function spaced<T>(all: readonly T[], limit: number): T[] {
  const stride = Math.max(1, (all.length - 1) / (limit - 1));
  const length = Math.min(all.length, limit);
  return Array.from({ length }, (_, i) => all[Math.round(i * stride)] as T);
}
