/** Where axes have ticks; pure. */
import type { Axis } from '../model/viewsettings.js';

/** Tick increments up to the largest float32, as of a diverging loss; uPlot's own end sooner. */
export const VALUE_INCREMENTS = Array.from({ length: 90 }, (_, power) =>
  [1, 2, 2.5, 5].map(digit => digit * 10 ** (power - 45))
).flat();
export const WHOLE_INCREMENTS = VALUE_INCREMENTS.filter(Number.isInteger);
/** Tick increments of time, in seconds. */
const TIME_INCREMENTS = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
  14_400, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000, 4_320_000, 8_640_000
];
/** Tick increments of steps: integers. */
const STEP_INCREMENTS = Array.from({ length: 10 }, (_, power) =>
  [1, 2, 5].map(digit => digit * 10 ** power)
).flat();
/** Axes of more epochs have ticks at whole epochs only. */
const MAX_PARTS_OF_EPOCHS = 2;
/** First digits of the ticks of a logarithmic axis, most ticks first. */
const LOG_DIGITS = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]];

/** The increments of a linear x axis, of which uPlot takes the smallest with enough space. */
export function increments(axis: Axis, span: number): number[] {
  switch (axis) {
    case 'step':
      return STEP_INCREMENTS;
    case 'epoch':
      return span > MAX_PARTS_OF_EPOCHS ? WHOLE_INCREMENTS : VALUE_INCREMENTS;
    case 'time':
      return TIME_INCREMENTS;
  }
}

/**
 * The ticks of a logarithmic axis: the same first digits in each power of ten, or, where that
 * gives fewer than two, the ticks of a linear axis.
 *
 * @param range Its ends, above 0.
 * @param room The length of the axis and the least distance of its ticks, in pixels.
 */
export function logTicks(
  [min, max]: readonly [number, number],
  { length, space }: { length: number; space: number }
): number[] {
  const perPower = length / Math.log10(max / min);
  const digits = LOG_DIGITS.find(each => leastDistance(each) * perPower >= space) ?? [1];
  const every = Math.max(1, Math.ceil(space / perPower));
  const first = every * Math.floor(Math.log10(min) / every);
  const powers = rangeOf(first, Math.log10(max), every);
  const ticks = powers.flatMap(power => digits.map(digit => times(digit, power)));
  const shown = ticks.filter(tick => tick >= min && tick <= max);
  return shown.length >= 2 ? shown : linearTicks([min, max], { length, space });
}

function linearTicks(
  [min, max]: readonly [number, number],
  { length, space }: { length: number; space: number }
): number[] {
  const increment = VALUE_INCREMENTS.find(each => (each / (max - min)) * length >= space);
  if (increment === undefined) {
    return [];
  }
  const numbers = rangeOf(Math.ceil(min / increment), max / increment, 1);
  return numbers.map(number => Number((number * increment).toPrecision(12)));
}

/** The least distance of two ticks, in powers of ten. */
function leastDistance(digits: readonly number[]): number {
  const distances = digits.map((digit, i) => Math.log10((digits[i + 1] ?? 10) / digit));
  return Math.min(...distances);
}

/** The number as it is written: 3 * 10 ** -4 is 0.00030000000000000003. */
function times(digit: number, power: number): number {
  return Number(`${digit}e${power}`);
}

function rangeOf(first: number, last: number, by: number): number[] {
  const count = Math.max(0, Math.floor((last - first) / by) + 1);
  return Array.from({ length: count }, (_, i) => first + i * by);
}
