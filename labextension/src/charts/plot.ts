/** How a chart looks in uPlot: its columns, curves, axes and cursor. Knows no page around it. */
import uPlot from 'uplot';

import { tickText } from './axes.js';
import { lonePlaces, smoothed, smoothingSpan, toColumns, type Column } from './curves.js';
import type { Axis } from '../model/settings.js';
import type { IChart, ISeries } from '../model/state.js';
import { colorOf, isDashed, type ITheme } from '../dom/theme.js';

/** What all charts of a view have in common. */
export interface IChartFrame {
  /** What of the x axis to show: the whole run, or what the reader zoomed into. */
  range: readonly [number, number];
  axis: Axis;
  logX: boolean;
  logY: boolean;
  smooth: boolean;
  stepsPerEpoch: number | null;
  /** The trial to stand out among others. */
  chosen?: number | null;
}

/** What a plot asks of the chart around it, each time it draws. */
export interface IPlotSource {
  chart: () => IChart;
  frame: () => IChartFrame;
  theme: () => ITheme;
  /** Plots with the same key show the same step under the pointer. */
  syncKey: string;
  onCursor: (place: number | null) => void;
  onZoom: (range: [number, number] | null) => void;
}

export const HEIGHT = 168;
/** Of what was measured, behind its average. */
const RAW_ALPHA = 0.32;
/** Of trials behind others. */
const FAINT_ALPHA = 0.4;
/** More points than this would hide the line that joins them. */
const MAX_DOTS = 60;
const MIN_ZOOM_PX = 4;
/** A diverging loss reaches the end of float32; uPlot's own increments end sooner. */
const VALUE_INCREMENTS = Array.from({ length: 90 }, (_, power) =>
  [1, 2, 2.5, 5].map(digit => digit * 10 ** (power - 45))
).flat();
/** Round spans of time, in seconds. */
const TIME_INCREMENTS = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
  14_400, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000, 4_320_000, 8_640_000
];
/** Half a step is no step. */
const STEP_INCREMENTS = Array.from({ length: 10 }, (_, power) =>
  [1, 2, 5].map(digit => digit * 10 ** power)
).flat();
const INCREMENTS: Record<Axis, number[]> = {
  step: STEP_INCREMENTS,
  epoch: VALUE_INCREMENTS,
  time: TIME_INCREMENTS
};

/** What of a chart is settled when its plot is made; when it changes, a new plot is needed. */
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
      isSmoothed(one, frame)
    ])
  ]);
}

/** Whether its y axis is logarithmic: asked for, and there is something to draw on it. */
export function isLogY(chart: IChart, frame: IChartFrame): boolean {
  return frame.logY && chart.series.some(one => (one.highest ?? 0) > 0);
}

/** The columns to plot; a smoothed curve has two: what was measured, and its average. */
export function plotColumns(chart: IChart, frame: IChartFrame): uPlot.AlignedData {
  const isLog = isLogY(chart, frame);
  const series = chart.series.flatMap(one => {
    const raw = { ...one, values: one.values.map(value => drawable(value, isLog)) };
    return isSmoothed(one, frame)
      ? [raw, { ...raw, values: smoothed(raw, smoothingSpan(one)) }]
      : [raw];
  });
  return toColumns(series);
}

export function plotOptions(source: IPlotSource, width: number): uPlot.Options {
  const axis: uPlot.Axis = {
    stroke: () => source.theme().text,
    grid: { stroke: () => source.theme().grid, width: 1 },
    font: source.theme().font,
    gap: 4,
    ticks: { show: false },
    values: (_plot, ticks) => labelled(ticks, formatTick)
  };
  const frame = source.frame();
  return {
    width,
    height: HEIGHT,
    padding: [8, 10, 0, 0],
    legend: { show: false },
    scales: {
      x: {
        time: false,
        distr: distribution(frame.logX),
        range: () => shownRange(source.frame())
      },
      y: { distr: distribution(isLogY(source.chart(), frame)) }
    },
    series: [{}, ...plotSeries(source)],
    axes: [
      {
        ...axis,
        size: 26,
        space: 56,
        values: (_plot, ticks) => labelled(ticks, x => tickText(frame.axis, x)),
        ...(frame.logX ? {} : { incrs: INCREMENTS[frame.axis] })
      },
      {
        ...axis,
        size: widthOf,
        space: 32,
        ...(isLogY(source.chart(), frame) ? {} : { incrs: VALUE_INCREMENTS })
      }
    ],
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false },
      sync: { key: source.syncKey, scales: ['x', null] },
      dataIdx: placeWithPoint,
      points: { size: 7, width: 0, fill: cursorColor },
      bind: {
        dblclick: () => () => {
          source.onZoom(null);
          return null;
        }
      }
    },
    hooks: {
      setCursor: [plot => source.onCursor(plot.cursor.idx ?? null)],
      setSelect: [plot => zoom(plot, source)]
    }
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
    return isSmoothed(one, source.frame())
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

/** Points that no line would show. */
function loneFilter(plot: uPlot, series: number): number[] {
  return lonePlaces(plot.data[series] as Column);
}

function isSmoothed(one: ISeries, frame: IChartFrame): boolean {
  return frame.smooth && !one.is_faint && smoothingSpan(one) > 0;
}

function hasAllDots(one: ISeries): boolean {
  return one.kind === 'points' && one.steps.length <= MAX_DOTS;
}

/** Beyond this, differences overflow, and nothing at all would be drawn. */
function drawable(value: number | null, isLog: boolean): number | null {
  return value !== null && Math.abs(value) < 1e100 && (value > 0 || !isLog) ? value : null;
}

function shownRange({ range: [min, max], axis, logX }: IChartFrame): [number, number] {
  const least = axis === 'step' && !logX ? 1 : min * 1e-3 || 1e-3;
  return [min, Math.max(max, min + least)];
}

function distribution(isLog: boolean): uPlot.Scale.Distr {
  // Its enum exists in the typings alone, not in the module.
  // eslint-disable-next-line @typescript-eslint/no-unsafe-enum-assignment
  return isLog ? 3 : 1;
}

/** Between the powers of ten of a logarithmic axis, uPlot has ticks without a number. */
function labelled(
  ticks: readonly (number | null)[],
  text: (value: number) => string
): (string | null)[] {
  return ticks.map(tick => (tick === null ? null : text(tick)));
}

/** Axis numbers are round already; this only keeps them short. */
function formatTick(value: number): string {
  const size = Math.abs(value);
  const short = Number(value.toPrecision(6));
  return size !== 0 && (size < 1e-4 || size >= 1e6) ? short.toExponential() : String(short);
}

function widthOf(_plot: uPlot, labels: readonly (string | null)[] | null): number {
  return 14 + 6.5 * Math.max(3, ...(labels ?? []).map(label => label?.length ?? 0));
}

/** What is under the cursor is a measured point: an average, which has none, shows none. */
function cursorColor(plot: uPlot, i: number): string {
  if (plot.series[i]?.alpha === FAINT_ALPHA) {
    return 'transparent';
  }
  const stroke = plot.series[i]?.stroke;
  const isAverage = plot.series[i - 1]?.alpha === RAW_ALPHA;
  const color = typeof stroke === 'function' ? stroke(plot, i) : stroke;
  return isAverage || typeof color !== 'string' ? 'transparent' : color;
}

/** The newest point of a series at or before a place: sparse series are read between points. */
function placeWithPoint(plot: uPlot, series: number, place: number): number {
  const values = plot.data[series] as Column;
  let i = place;
  while (i > 0 && values[i] === undefined) {
    i -= 1;
  }
  return i;
}

function zoom(plot: uPlot, source: IPlotSource): void {
  const { left, width } = plot.select;
  if (width > MIN_ZOOM_PX) {
    source.onZoom([plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')]);
  }
  if (width > 0) {
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }
}
