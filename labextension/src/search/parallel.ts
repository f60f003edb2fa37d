/** Parallel coordinates: an axis for each hyperparameter and for the metric; pure. */
import type { IAxis, IRow, ISearch } from '../model/state.js';
import { axisScale, linearScale, robustRange, type IScale } from '../model/scales.js';

export interface IParallelAxis {
  name: string;
  x: number;
  /** The hyperparameter's axis; null for the metric's. */
  axis: IAxis | null;
  scale: IScale;
  /** Whether the low end is at the top, as for a metric to minimize. */
  isFlipped: boolean;
}

export interface ILine {
  row: IRow;
  /** Per axis; null where the trial has no value. */
  ys: (number | null)[];
}

export interface IParallelLayout {
  axes: IParallelAxis[];
  lines: ILine[];
  top: number;
  bottom: number;
}

const SIDE = 40;
const TOP = 28;
const BOTTOM = 12;

export function layoutParallel(search: ISearch, width: number, height: number): IParallelLayout {
  const { metric } = search;
  const bests = search.rows.flatMap(row => (row.best === null ? [] : [row.best]));
  const specs: Omit<IParallelAxis, 'x'>[] = [
    ...search.axes.map(axis => ({
      name: axis.name,
      axis,
      scale: axisScale(axis),
      isFlipped: false
    })),
    {
      name: metric,
      axis: null,
      scale: linearScale(...robustRange(bests, search.smaller_is_better)),
      isFlipped: search.smaller_is_better
    }
  ];
  const stride = (width - 2 * SIDE) / Math.max(1, specs.length - 1);
  const axes = specs.map((spec, i) => ({ ...spec, x: SIDE + i * stride }));
  const frame = { top: TOP, bottom: height - BOTTOM };
  return {
    ...frame,
    axes,
    lines: search.rows.map(row => ({
      row,
      ys: axes.map((axis, i) => {
        const value = axis.axis === null ? row.best : (row.values[i] ?? null);
        return value === null ? null : toY(axis, value, frame);
      })
    }))
  };
}

interface IFrame {
  top: number;
  bottom: number;
}

export function toY(axis: IParallelAxis, value: number, { top, bottom }: IFrame): number {
  const place = axis.scale.place(value);
  return top + (bottom - top) * (axis.isFlipped ? place : 1 - place);
}

/** The values between two heights of an axis, lowest first. */
export function toRange(
  axis: IParallelAxis,
  from: number,
  to: number,
  { top, bottom }: IFrame
): [number, number] {
  const [low, high] = [from, to]
    .map(y => Math.min(1, Math.max(0, (y - top) / (bottom - top))))
    .map(place => axis.scale.value(axis.isFlipped ? place : 1 - place))
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
