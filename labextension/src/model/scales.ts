/** Places values on the axes of a search, which det_jupyter/view/making/axes.py makes; pure. */
import { formatNumber } from './format.js';
import type { IAxis } from './state.js';

/** A label beside an axis, at a place from 0 at its start to 1 at its end. */
export interface ITick {
  place: number;
  label: string;
}

/** The least room left of an axis, for its labels. */
const MIN_ROOM = 46;
/** The width of a digit in a tick label, in pixels. */
const DIGIT = 7;

/** The width in pixels that the labels to the left of an axis need, with the space around them. */
export function roomForTicks({ tick_labels }: IAxis): number {
  return Math.max(MIN_ROOM, 9 + DIGIT * Math.max(0, ...tick_labels.map(label => label.length)));
}

export function ticksOf(axis: IAxis): ITick[] {
  return axis.ticks.map((value, i) => ({
    place: placeOn(axis, value),
    label: axis.tick_labels[i] as string
  }));
}

/** The place of a value, by the same rule as that of the saved picture: `place_on` in Python. */
export function placeOn({ scale, start, end }: IAxis, value: number): number {
  if (scale !== 'log') {
    return shareOf(start, end, value);
  }
  return value > 0 ? shareOf(Math.log(start), Math.log(end), Math.log(value)) : 0;
}

function shareOf(start: number, end: number, value: number): number {
  return start === end ? 0.5 : Math.min(1, Math.max(0, (value - start) / (end - start)));
}

/** The value at a place. */
export function valueAt({ scale, start, end }: IAxis, place: number): number {
  return scale === 'log' ? start * (end / start) ** place : start + (end - start) * place;
}

/** The axis from its smallest to its largest value; that of a metric ends with the best. */
export function upward(axis: IAxis): IAxis {
  const { start, end } = axis;
  return { ...axis, start: Math.min(start, end), end: Math.max(start, end) };
}

/** Formats a value of an axis. */
export function axisText(axis: IAxis, value: number | null): string {
  if (value === null) {
    return '–';
  }
  if (axis.scale === 'category') {
    return axis.labels[value] ?? '–';
  }
  return axis.is_whole ? String(value) : formatNumber(value);
}
