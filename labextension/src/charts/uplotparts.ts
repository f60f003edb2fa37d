/** The uPlot options that all plots share: axes, cursor, zoom and pan. Does not access the page. */
import type uPlot from 'uplot';

import { tickText } from './axes.js';
import { lonePlaces, type Column } from './curves.js';
import { increments, logTicks, VALUE_INCREMENTS, WHOLE_INCREMENTS } from './ticks.js';
import type { Axis } from '../model/viewsettings.js';
import type { ITheme } from '../dom/theme.js';

export type Range = readonly [number, number];

export const HEIGHT = 168;
const MIN_ZOOM_PX = 4;
/** The options for the size and the x axis of a plot; `range` returns the shown range. */
export function frameOf(
  range: () => Range,
  { axis, logX, width }: { axis: Axis; logX: boolean; width: number }
): Pick<uPlot.Options, 'width' | 'height' | 'padding' | 'legend'> & { x: uPlot.Scale } {
  return {
    width,
    height: HEIGHT,
    padding: [8, 18, 0, 0], // room for half of the last tick label
    legend: { show: false },
    x: { time: false, distr: distribution(logX), range: () => drawnRange(range(), axis, logX) }
  };
}

export interface IAxesLook {
  theme: () => ITheme;
  axis: Axis;
  logX: boolean;
  logY: boolean;
  /** Formats a tick label of the y axis. */
  tick: (value: number) => string;
}

const SPACES = { x: 56, y: 32 }; // the least distance of ticks, in pixels

export function axesOf({ theme, axis, logX, logY, tick }: IAxesLook): uPlot.Axis[] {
  const common: uPlot.Axis = {
    stroke: () => theme().text,
    grid: { stroke: () => theme().grid, width: 1 },
    font: theme().font,
    gap: 4,
    ticks: { show: false }
  };
  return [
    {
      ...common,
      size: 26,
      space: SPACES.x,
      values: (_plot, ticks) => labelled(ticks, x => tickText(axis, x)),
      ...(logX
        ? logAxis(SPACES.x)
        : { incrs: (_plot, _place, min, max) => increments(axis, max - min) })
    },
    {
      ...common,
      size: widthOf,
      space: SPACES.y,
      values: (_plot, ticks) => labelled(ticks, tick),
      ...(logY
        ? logAxis(SPACES.y)
        : { incrs: plot => (isWhole(plot) ? WHOLE_INCREMENTS : VALUE_INCREMENTS) })
    }
  ];
}

/**
 * uPlot's own ticks of a logarithmic axis have labels at powers of ten only where the axis is short
 * or horizontal: one label, or none, for curves within one power.
 */
function logAxis(space: number): Pick<uPlot.Axis, 'incrs' | 'splits' | 'filter'> {
  return {
    incrs: VALUE_INCREMENTS,
    splits: (_plot, _place, min, max, increment, found) =>
      logTicks([min, max], { length: (found * (max - min)) / increment, space }),
    filter: (_plot, ticks) => ticks
  };
}

/** Whether all values are integers, such as a number of processes; ticks are integers then. */
function isWhole({ data: [, ...columns] }: uPlot): boolean {
  const values = (columns as Column[]).map(one => one.filter(value => (value ?? null) !== null));
  return values.some(one => one.length > 0) && values.every(one => one.every(Number.isInteger));
}

export interface IMoves {
  /** Plots with the same key show the same x under the pointer. */
  syncKey: string;
  range: () => Range;
  onCursor: () => void;
  onZoom: (range: Range | null) => void;
  cursorColor: (plot: uPlot, series: number) => string;
}

/** The options for zooming by dragging, panning with Shift, and resetting by a double click. */
export function movesOf(moves: IMoves): Pick<uPlot.Options, 'cursor' | 'hooks'> {
  return {
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false },
      sync: { key: moves.syncKey, scales: ['x', null] },
      dataIdx: placeWithPoint,
      points: { size: 7, width: 0, fill: moves.cursorColor },
      bind: {
        mousedown: (plot, _target, handler) => event => {
          if (event.shiftKey) {
            pan(plot, event, moves);
          } else {
            handler(event);
          }
          return null;
        },
        dblclick: () => () => {
          moves.onZoom(null);
          return null;
        }
      }
    },
    hooks: {
      setCursor: [() => moves.onCursor()],
      setSelect: [plot => zoom(plot, moves)]
    }
  };
}

function zoom(plot: uPlot, { onZoom }: IMoves): void {
  const { left, width } = plot.select;
  if (width > MIN_ZOOM_PX) {
    onZoom([plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')]);
  }
  if (width > 0) {
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }
}

function pan(plot: uPlot, down: MouseEvent, { range, onZoom }: IMoves): void {
  const [min, max] = range();
  const perPixel = (max - min) / Math.max(1, plot.over.clientWidth);
  const moved = (event: MouseEvent): void => {
    const by = (down.clientX - event.clientX) * perPixel;
    onZoom([min + by, max + by]);
  };
  const done = (): void => {
    document.removeEventListener('mousemove', moved);
    document.removeEventListener('mouseup', done);
  };
  document.addEventListener('mousemove', moved);
  document.addEventListener('mouseup', done);
  down.preventDefault();
  down.stopPropagation(); // else a notebook selects cells and captures the pointer
}

/** The range after a key: `null` for the whole axis, `undefined` if the key does not zoom. */
export function zoomed(key: string, isShifted: boolean, range: Range): Range | null | undefined {
  const [min, max] = range;
  const span = max - min;
  const shift = (by: number): Range => [min + by * span, max + by * span];
  if (isShifted && key.startsWith('Arrow')) {
    const by = { ArrowLeft: -0.2, ArrowRight: 0.2 }[key];
    return by === undefined ? undefined : shift(by);
  }
  switch (key) {
    case '+':
    case '=':
      return [min + span / 4, max - span / 4];
    case '-':
      return [min - span / 2, max + span / 2];
    case '0':
      return null;
    default:
      return undefined;
  }
}

/** A range that uPlot can draw. */
function drawnRange([min, max]: Range, axis: Axis, logX: boolean): [number, number] {
  const least = axis === 'step' && !logX ? 1 : min * 1e-3 || 1e-3;
  return [min, Math.max(max, min + least)];
}

export function distribution(isLog: boolean): uPlot.Scale.Distr {
  // Its enum exists in the typings alone, not in the module.
  // eslint-disable-next-line @typescript-eslint/no-unsafe-enum-assignment
  return isLog ? 3 : 1;
}

/** The filter for points that a line would not show. */
export function loneFilter(plot: uPlot, series: number): number[] {
  return lonePlaces(plot.data[series] as Column);
}

/** Tick labels; uPlot has ticks without labels between powers of ten of a logarithmic axis. */
function labelled(
  ticks: readonly (number | null)[],
  text: (value: number) => string
): (string | null)[] {
  return ticks.map(tick => (tick === null ? null : text(tick)));
}

/** Formats a tick label, whose value is round already. */
export function formatTick(value: number): string {
  const size = Math.abs(value);
  const short = Number(value.toPrecision(6));
  return size !== 0 && (size < 1e-4 || size >= 1e6) ? short.toExponential() : String(short);
}

function widthOf(_plot: uPlot, labels: readonly (string | null)[] | null): number {
  return 14 + 6.5 * Math.max(3, ...(labels ?? []).map(label => label?.length ?? 0));
}

/** The index of the last point of a series at or before an index, for sparse series. */
function placeWithPoint(plot: uPlot, series: number, place: number): number {
  const values = plot.data[series] as Column;
  let i = place;
  while (i > 0 && values[i] === undefined) {
    i -= 1;
  }
  return i;
}
