import { describe, expect, it } from 'vitest';

import { spanText } from '../src/model/format.js';
import { timeTicks } from '../src/search/progresspicture.js';
import {
  axisScale,
  axisText,
  categoryScale,
  linearScale,
  logScale,
  robustRange,
  roundNumbers
} from '../src/model/scales.js';
import type { IAxis } from '../src/model/state.js';
import { search } from './samples.js';

describe('scales', () => {
  it('place values between 0 and 1, and those outside at the ends', () => {
    const scale = linearScale(10, 20);
    expect([5, 10, 15, 20, 99].map(value => scale.place(value))).toEqual([0, 0, 0.5, 1, 1]);
    expect(scale.value(0.25)).toBe(12.5);
    expect(scale.ticks.map(tick => tick.label)).toEqual(['10', '12', '14', '16', '18', '20']);
  });

  it('put a single value in the middle', () => {
    const scale = linearScale(3, 3);
    expect(scale.place(3)).toBe(0.5);
    expect(scale.ticks).toEqual([{ value: 3, label: '3' }]);
  });

  it('of logarithms have powers of ten, however many there are', () => {
    const scale = logScale(1e-4, 0.1);
    expect(scale.place(1e-4)).toBe(0);
    expect(scale.place(0.1)).toBeCloseTo(1, 12);
    expect(scale.place(10 ** -2.5)).toBeCloseTo(0.5, 12);
    expect(scale.value(1)).toBeCloseTo(0.1, 12);
    expect(scale.ticks.map(tick => tick.label)).toEqual(['1e-4', '0.001', '0.01', '0.1']);
    expect(logScale(1e-30, 1).ticks.length).toBeLessThanOrEqual(7);
    expect(logScale(2, 32).ticks.map(tick => tick.label)).toEqual(['2', '32']);
    expect(scale.place(0)).toBe(0);
  });

  it('of categories have a share for each label', () => {
    const scale = categoryScale(['a', 'b']);
    expect([0, 1].map(value => scale.place(value))).toEqual([0.25, 0.75]);
    expect(scale.value(0.75)).toBe(1);
    expect(scale.ticks.map(tick => tick.label)).toEqual(['a', 'b']);
    const many = categoryScale(Array.from({ length: 100 }, (_, i) => String(i)));
    expect(many.ticks.length).toBeLessThanOrEqual(12);
  });

  it('follow the axis', () => {
    const [lr, name] = search([]).axes.map(axisScale);
    expect(lr?.ticks).toHaveLength(4);
    expect(name?.ticks.map(tick => tick.label)).toEqual(['sgd', 'adam']);
  });

  it('write values as their axis has them', () => {
    const [lr, name] = search([]).axes;
    expect(lr && axisText(lr, 0.005)).toBe('0.005000');
    expect(lr && axisText({ ...lr, is_whole: true }, 16)).toBe('16');
    expect(name && axisText(name, 1)).toBe('adam');
    expect(name && axisText(name, null)).toBe('–');
  });
});

describe('round numbers', () => {
  it('are multiples of 1, 2 or 5', () => {
    expect(roundNumbers(0, 1, 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(roundNumbers(-0.3, 0.3, 4)).toEqual([-0.2, 0, 0.2]);
    expect(roundNumbers(16, 256, 5)).toEqual([50, 100, 150, 200, 250]);
  });

  it('are whole where values are', () => {
    expect(roundNumbers(1, 3, 5)).toEqual([1, 1.5, 2, 2.5, 3]);
    expect(roundNumbers(1, 3, 5, true)).toEqual([1, 2, 3]);
    expect(roundNumbers(0, 1, 5, true)).toEqual([0, 1]);
    expect(roundNumbers(16, 256, 5, true)).toEqual([50, 100, 150, 200, 250]);
    expect(roundNumbers(2, 2, 5, true)).toEqual([2]);
    const layers: Omit<IAxis, 'is_whole'> = {
      name: 'n',
      scale: 'linear',
      low: 1,
      high: 3,
      labels: []
    };
    const labels = axisScale({ ...layers, is_whole: true }).ticks.map(tick => tick.label);
    expect(labels).toEqual(['1', '2', '3']);
  });

  it('are one where there is no range', () => {
    expect(roundNumbers(2, 2, 5)).toEqual([2]);
    expect(roundNumbers(-Infinity, 2, 5)).toEqual([-Infinity]);
  });
});

describe('range of a metric', () => {
  const usual = [1, 1.1, 1.2, 1.3, 1.4];

  it('leaves out values far worse than most', () => {
    expect(robustRange([...usual, 1e9], true)[1]).toBeLessThan(3);
    expect(robustRange([...usual, -1e9], false)[0]).toBeGreaterThan(0);
  });

  it('never leaves out the best', () => {
    expect(robustRange([...usual, -1e9], true)[0]).toBeLessThan(-1e9);
    expect(robustRange([...usual, 1e9], false)[1]).toBeGreaterThan(1e9);
  });

  it('has some air, also around a single value', () => {
    expect(robustRange([2], true)).toEqual([1.9, 2.1]);
    expect(robustRange([0], true)).toEqual([-0.5, 0.5]);
    expect(robustRange([], true)).toEqual([0, 1]);
    expect(robustRange([NaN, 2], true)).toEqual([1.9, 2.1]);
  });
});

describe('time', () => {
  it('has round ticks', () => {
    expect(timeTicks(420, 4).map(tick => tick.label)).toEqual(['0', '2 min', '4 min', '6 min']);
    expect(timeTicks(9, 5).map(tick => tick.value)).toEqual([0, 2, 4, 6, 8]);
    expect(timeTicks(1e7, 4).length).toBeLessThanOrEqual(5);
  });

  it('is written in its largest unit', () => {
    expect([0, 45, 90, 7200, 259_200].map(spanText)).toEqual([
      '0',
      '45 s',
      '1.5 min',
      '2 h',
      '3 d'
    ]);
  });
});
