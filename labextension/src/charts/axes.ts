/** The x axis of charts: batches, epochs or time; linear or logarithmic; pure. */
import { formatDuration, spanText } from '../model/format.js';
import type { Axis } from '../model/viewsettings.js';
import type { IChart, IChartSeries } from '../model/state.js';
import type { ITrans } from '../model/trans.js';

export const AXES: readonly Axis[] = ['step', 'epoch', 'time'];

/** The axis to draw: batches instead of epochs if no curve has an epoch length. */
export function drawnAxis(wanted: Axis, charts: readonly IChart[]): Axis {
  return wanted === 'epoch' && !hasEpochs(charts) ? 'step' : wanted;
}

export function hasEpochs(charts: readonly IChart[]): boolean {
  return charts.some(chart => chart.series.some(one => one.steps_per_epoch !== null));
}

/**
 * The chart with its points where the axis has them, in place of their steps. A curve whose
 * epochs are not known has none on an axis of epochs; a logarithmic axis has no place for 0.
 */
export function alongAxis(chart: IChart, axis: Axis, isLog: boolean): IChart {
  if (axis === 'step' && !isLog) {
    return chart;
  }
  return { ...chart, series: chart.series.map(one => moved(one, axis, isLog)) };
}

function moved(one: IChartSeries, axis: Axis, isLog: boolean): IChartSeries {
  const xs = placesOf(one, axis);
  const kept = xs.flatMap((x, i) => (isLog && x <= 0 ? [] : [i]));
  return {
    ...one,
    steps: kept.map(i => xs[i] as number),
    values: kept.map(i => one.values[i] ?? null)
  };
}

function placesOf(one: IChartSeries, axis: Axis): number[] {
  if (axis === 'time') {
    return one.seconds;
  }
  const perEpoch = one.steps_per_epoch;
  if (axis === 'step') {
    return one.steps;
  }
  return perEpoch === null ? [] : one.steps.map(step => step / perEpoch);
}

/** The range of all curves; a logarithmic axis begins with the first point. */
export function wholeRange(charts: readonly IChart[], isLog: boolean): [number, number] {
  const xs = charts.flatMap(chart =>
    chart.series.flatMap(one =>
      one.steps.length === 0 ? [] : [one.steps[0] as number, one.steps.at(-1) as number]
    )
  );
  if (isLog) {
    const low = Math.min(...xs);
    return xs.length === 0 ? [1, 10] : [low, Math.max(low * 1.1, ...xs)];
  }
  return [Math.min(0, ...xs), Math.max(0, ...xs)];
}

/** Formats a position on an axis: `step 12`, `epoch 0.5`, `1:15`. */
export function placeText(axis: Axis, x: number, trans: ITrans): string {
  switch (axis) {
    case 'step':
      return trans.__('step %1', x);
    case 'epoch':
      return trans.__('epoch %1', short(x));
    case 'time':
      return x < 60 ? trans.__('%1 s', short(x)) : formatDuration(x);
  }
}

/** The number beside a tick. */
export function tickText(axis: Axis, x: number): string {
  return axis === 'time' ? spanText(short(x)) : String(short(x));
}

function short(x: number): number {
  return Number(x.toPrecision(x < 1 ? 2 : 4));
}
