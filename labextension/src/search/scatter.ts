/** Lays out a scatter plot of a hyperparameter and a metric; pure. */
import { logTicks } from '../charts/ticks.js';
import { placeOn, roomForTicks, ticksOf, upward } from '../model/scales.js';
import type { IAxis, ITrialRow, ISearchState } from '../model/state.js';

export interface IScatterDot {
  row: ITrialRow;
  x: number;
  y: number;
  value: number;
}

export interface IScatterLayout {
  dots: IScatterDot[];
  xTicks: { x: number; label: string }[];
  yTicks: { y: number; label: string }[];
  left: number;
  bottom: number;
}

const RIGHT = 16;
const TOP = 12;
const BOTTOM = 24;
const TICK_SPACE = 28;

/** The axis of this name, else the first. */
export function scatterAxis(search: ISearchState, name: string): IAxis | undefined {
  return search.axes.find(axis => axis.name === name) ?? search.axes[0];
}

/** The axis of the metric of this name, else the searcher's. */
export function scatterMetric(search: ISearchState, name: string): IAxis {
  return search.metrics.find(one => one.name === name) ?? search.best_axis;
}

/** A trial's best value of the searcher's metric, or the last of another. */
function metricOf(search: ISearchState, row: ITrialRow, { name }: IAxis): number | null {
  const place = search.metrics.findIndex(one => one.name === name);
  return place === -1 ? row.best : (row.metrics[place] ?? null);
}

export interface IScatterOptions {
  axis: IAxis;
  metric: IAxis;
  isLogY: boolean;
  width: number;
  height: number;
}

export function layoutScatter(
  search: ISearchState,
  { axis, metric, isLogY, width, height }: IScatterOptions
): IScatterLayout {
  const column = search.axes.indexOf(axis);
  const found = search.rows.flatMap(row => {
    const at = row.values[column] ?? null;
    const value = metricOf(search, row, metric);
    return at === null || value === null || (isLogY && value <= 0) ? [] : [{ row, at, value }];
  });
  const bottom = height - BOTTOM;
  const length = bottom - TOP;
  const values = found.map(one => one.value);
  const yAxis = isLogY && values.length > 0 ? logarithmic(metric, values, length) : upward(metric);
  const left = roomForTicks(yAxis);
  const x = (place: number): number => left + (width - left - RIGHT) * place;
  const y = (place: number): number => TOP + length * (1 - place);
  return {
    left,
    bottom,
    dots: found.map(({ row, at, value }) => ({
      row,
      value,
      x: x(placeOn(axis, at)),
      y: y(placeOn(yAxis, value))
    })),
    xTicks: ticksOf(axis).map(({ place, label }) => ({ x: x(place), label })),
    yTicks: ticksOf(yAxis).map(({ place, label }) => ({ y: y(place), label }))
  };
}

/** A metric's axis with a logarithmic scale, which a user can choose in the page. */
function logarithmic(metric: IAxis, values: readonly number[], length: number): IAxis {
  const [start, end] = [Math.min(...values) / 1.1, Math.max(...values) * 1.1];
  const ticks = logTicks([start, end], { length, space: TICK_SPACE });
  return { ...metric, scale: 'log', start, end, ticks, tick_labels: ticks.map(String) };
}

/** The dot to which a key moves: left and right by hyperparameter, Home and End. */
export function nextScatterDot(
  dots: readonly IScatterDot[],
  from: number | null,
  key: string
): IScatterDot | null {
  const order = dots.toSorted((a, b) => a.x - b.x || a.row.id - b.row.id);
  const place = order.findIndex(dot => dot.row.id === from);
  const last = order.length - 1;
  const wanted: Record<string, number> = {
    ArrowRight: Math.min(last, place + 1),
    ArrowLeft: place === -1 ? last : Math.max(0, place - 1),
    Home: 0,
    End: last
  };
  return order[wanted[key] ?? -1] ?? null;
}
