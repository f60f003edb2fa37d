/** The uPlot options of a chart: columns, curves, axes and cursor. Does not access the page. */
import type uPlot from 'uplot';

import { smoothed, smoothingSpan, toColumns } from './curves.js';
import {
  axesOf,
  distribution,
  formatTick,
  frameOf,
  loneFilter,
  movesOf,
  type Range
} from './uplotparts.js';
import type { Axis } from '../model/viewsettings.js';
import type { IChart, IChartSeries } from '../model/state.js';
import { colorOf, isDashed, type ITheme } from '../dom/theme.js';

/** The properties that all charts of a view share. */
export interface IChartFrame {
  /** The shown range of the x axis. */
  range: Range;
  axis: Axis;
  logX: boolean;
  logY: boolean;
  smooth: boolean;
  stepsPerEpoch: number | null;
  /** The highlighted trial. */
  chosen?: number | null;
}

/** The state of the chart that a plot reads each time it draws. */
export interface IPlotSource {
  chart: () => IChart;
  frame: () => IChartFrame;
  theme: () => ITheme;
  /** Plots with the same key show the same step under the pointer. */
  syncKey: string;
  onCursor: () => void;
  onZoom: (range: Range | null) => void;
}

/** The opacity of measured values behind their average. */
const RAW_ALPHA = 0.32;
/** The opacity of trials in the background. */
const FAINT_ALPHA = 0.4;
/** With more points, none is drawn as a dot. */
const MAX_DOTS = 60;
/** The properties that are fixed when a plot is made; a new plot is made when they change. */
export function plotShape(chart: IChart, frame: IChartFrame): string {
  return JSON.stringify([
    frame.axis,
    frame.logX,
    isLogY(chart, frame),
    ...chart.series.map(one => [
      one.kind,
      one.look,
      one.is_faint,
      one.trial_id === frame.chosen,
      hasAllDots(one),
      isSmoothed(one, chart, frame)
    ])
  ]);
}

/** Whether its y axis is logarithmic: by the settings, and if it has values above 0. */
export function isLogY(chart: IChart, frame: IChartFrame): boolean {
  return frame.logY && chart.series.some(one => (one.highest ?? 0) > 0);
}

/** The columns to plot; a smoothed curve has two: the values and their average. */
export function plotColumns(chart: IChart, frame: IChartFrame): uPlot.AlignedData {
  const isLog = isLogY(chart, frame);
  const span = smoothingSpan(chart);
  const series = chart.series.flatMap(one => {
    const raw = { ...one, values: one.values.map(value => drawable(value, isLog)) };
    return isSmoothed(one, chart, frame) ? [raw, { ...raw, values: smoothed(raw, span) }] : [raw];
  });
  return toColumns(series);
}

export function plotOptions(source: IPlotSource, width: number): uPlot.Options {
  const { axis, logX } = source.frame();
  const { x, ...frame } = frameOf(() => source.frame().range, { axis, logX, width });
  const logY = isLogY(source.chart(), source.frame());
  return {
    ...frame,
    scales: {
      x,
      y: { distr: distribution(logY) }
    },
    series: [{}, ...plotSeries(source)],
    axes: axesOf({ theme: source.theme, axis, logX, logY, tick: formatTick }),
    ...movesOf({ ...source, range: () => source.frame().range, cursorColor })
  };
}

function plotSeries(source: IPlotSource): uPlot.Series[] {
  return source.chart().series.flatMap(one => {
    if (one.is_faint) {
      return [faintSeries(source)];
    }
    const stroke = (): string => colorOf(source.theme(), one.look);
    const extra = one.trial_id === source.frame().chosen ? 1.5 : 0;
    const line: uPlot.Series = {
      ...(isDashed(one.look) ? { dash: [6, 4] } : {}),
      stroke,
      width: (one.kind === 'points' ? 2 : 1.5) + extra,
      points: {
        show: true,
        filter: hasAllDots(one) ? () => null : loneFilter,
        size: 6,
        fill: stroke,
        stroke,
        width: 0
      }
    };
    return isSmoothed(one, source.chart(), source.frame())
      ? [
          { ...line, width: 1, alpha: RAW_ALPHA },
          { ...line, width: 2 + extra }
        ]
      : [line];
  });
}

function faintSeries(source: IPlotSource): uPlot.Series {
  const stroke = (): string => source.theme().text;
  return {
    stroke,
    width: 1,
    alpha: FAINT_ALPHA,
    points: { show: true, filter: loneFilter, size: 4, fill: stroke, stroke, width: 0 }
  };
}

function isSmoothed(one: IChartSeries, chart: IChart, frame: IChartFrame): boolean {
  return frame.smooth && !one.is_faint && one.kind === 'line' && smoothingSpan(chart) > 0;
}

function hasAllDots(one: IChartSeries): boolean {
  return one.kind === 'points' && one.steps.length <= MAX_DOTS;
}

/** Larger values make differences overflow, so that uPlot draws nothing. */
function drawable(value: number | null, isLog: boolean): number | null {
  return value !== null && Math.abs(value) < 1e100 && (value > 0 || !isLog) ? value : null;
}

/** Points under the cursor are those of measured values; averages have none. */
function cursorColor(plot: uPlot, i: number): string {
  if (plot.series[i]?.alpha === FAINT_ALPHA) {
    return 'transparent';
  }
  const stroke = plot.series[i]?.stroke;
  const isAverage = plot.series[i - 1]?.alpha === RAW_ALPHA;
  const color = typeof stroke === 'function' ? stroke(plot, i) : stroke;
  return isAverage || typeof color !== 'string' ? 'transparent' : color;
}
