/** Lays out a scatter plot of a hyperparameter and a metric; pure. */
import { axisScale, linearScale, logScale, robustRange, type IScale } from '../model/scales.js';
import type { IAxis, IRow, ISearch } from '../model/state.js';

export interface IScatterDot {
  row: IRow;
  x: number;
  y: number;
  value: number;
}

export interface IScatterLayout {
  dots: IScatterDot[];
  xTicks: { x: number; label: string }[];
  yTicks: { y: number; label: string }[];
  bottom: number;
}

const LEFT = 46;
const RIGHT = 16;
const TOP = 12;
const BOTTOM = 24;

/** The axis of this name, else the first. */
export function scatterAxis(search: ISearch, name: string): IAxis | undefined {
  return search.axes.find(axis => axis.name === name) ?? search.axes[0];
}

/** The metric of this name, else the searcher's. */
export function scatterMetric(search: ISearch, name: string): string {
  return search.metrics.includes(name) ? name : search.metric;
}

/** A trial's best value of the searcher's metric, or the last of another. */
function metricOf(search: ISearch, row: IRow, name: string): number | null {
  const place = search.metrics.indexOf(name);
  return place === -1 ? row.best : (row.metrics[place] ?? null);
}

export interface IScatterOptions {
  axis: IAxis;
  metric: string;
  isLogY: boolean;
  width: number;
  height: number;
}

export function layoutScatter(
  search: ISearch,
  { axis, metric, isLogY, width, height }: IScatterOptions
): IScatterLayout {
  const column = search.axes.indexOf(axis);
  const found = search.rows.flatMap(row => {
    const at = row.values[column] ?? null;
    const value = metricOf(search, row, metric);
    return at === null || value === null || (isLogY && value <= 0) ? [] : [{ row, at, value }];
  });
  const values = found.map(one => one.value);
  const xScale = axisScale(axis);
  const yScale = scaleOf(values, isLogY, metric === search.metric && search.smaller_is_better);
  const bottom = height - BOTTOM;
  const x = (place: number): number => LEFT + (width - LEFT - RIGHT) * place;
  const y = (place: number): number => TOP + (bottom - TOP) * (1 - place);
  return {
    bottom,
    dots: found.map(({ row, at, value }) => ({
      row,
      value,
      x: x(xScale.place(at)),
      y: y(yScale.place(value))
    })),
    xTicks: xScale.ticks.map(one => ({ x: x(xScale.place(one.value)), label: one.label })),
    yTicks: yScale.ticks.map(one => ({ y: y(yScale.place(one.value)), label: one.label }))
  };
}

function scaleOf(values: readonly number[], isLog: boolean, smallerIsBetter: boolean): IScale {
  if (!isLog) {
    return linearScale(...robustRange(values, smallerIsBetter));
  }
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return values.length === 0 ? logScale(1, 10) : logScale(low / 1.1, high * 1.1);
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
