/** Parallel coordinates: an axis for each hyperparameter and for the metric; pure. */
import type { IAxis, ITrialRow, ISearchState } from '../model/state.js';
import { placeOn, roomForTicks, valueAt } from '../model/scales.js';

export interface IParallelAxis {
  axis: IAxis;
  x: number;
}

export interface ILine {
  row: ITrialRow;
  /** Per axis; null where the trial has no value. */
  ys: (number | null)[];
}

export interface IParallelLayout {
  axes: IParallelAxis[];
  lines: ILine[];
  top: number;
  bottom: number;
}

const LEFT = 40;
const TOP = 28;
const BOTTOM = 12;

export function layoutParallel(
  search: ISearchState,
  width: number,
  height: number
): IParallelLayout {
  const right = roomForTicks(search.best_axis);
  const stride = (width - LEFT - right) / Math.max(1, search.axes.length);
  const axes = [...search.axes, search.best_axis].map((axis, i) => ({
    axis,
    x: LEFT + i * stride
  }));
  const frame = { top: TOP, bottom: height - BOTTOM };
  const lines = search.rows.map(row => {
    const values = [...row.values, row.best];
    return {
      row,
      ys: axes.map(({ axis }, i) => {
        const value = values[i] ?? null;
        return value === null ? null : toY(placeOn(axis, value), frame);
      })
    };
  });
  return { ...frame, axes, lines };
}

interface IFrame {
  top: number;
  bottom: number;
}

/** The height of a place on an axis. */
export function toY(place: number, { top, bottom }: IFrame): number {
  return top + (bottom - top) * (1 - place);
}

/** The values between two heights of an axis, lowest first. */
export function toRange(
  { axis }: IParallelAxis,
  from: number,
  to: number,
  { top, bottom }: IFrame
): [number, number] {
  const [low, high] = [from, to]
    .map(y => Math.min(1, Math.max(0, (bottom - y) / (bottom - top))))
    .map(place => valueAt(axis, place))
    .sort((a, b) => a - b) as [number, number];
  return [low, high];
}

/** The line nearest to a point, if one is near. */
export function nearestLine(
  { axes, lines }: IParallelLayout,
  x: number,
  y: number,
  reach = 8
): ILine | null {
  const right = axes.findIndex((axis, i) => i > 0 && axis.x >= x);
  const left = right - 1;
  if (left < 0) {
    return null;
  }
  const [from, to] = [(axes[left] as IParallelAxis).x, (axes[right] as IParallelAxis).x];
  const share = (x - from) / (to - from);
  let best: ILine | null = null;
  let distance = reach;
  for (const line of lines) {
    const [a, b] = [line.ys[left] ?? null, line.ys[right] ?? null];
    if (a !== null && b !== null) {
      const here = Math.abs(a + (b - a) * share - y);
      if (here < distance) {
        best = line;
        distance = here;
      }
    }
  }
  return best;
}
