import { describe, expect, it } from 'vitest';

import {
  lonePlaces,
  placeAt,
  smoothed,
  smoothingSpan,
  tableSteps,
  toColumns
} from '../src/charts/curves.js';
import { plotColumns } from '../src/charts/plot.js';
import { Clock } from '../src/model/clock.js';
import type { IChartSeries } from '../src/model/state.js';
import { chart, series } from './samples.js';

describe('columns', () => {
  it('puts curves with points at different steps side by side', () => {
    const sparse = series({ kind: 'points', steps: [2, 4], values: [9, 8] });
    expect(toColumns([series(), sparse])).toEqual([
      [1, 2, 3, 4],
      [3, 2, 1, undefined],
      [undefined, 9, undefined, 8]
    ]);
  });

  it('tells a gap from a step without a point', () => {
    const broken = series({ steps: [1, 3], values: [null, 5] });
    expect(toColumns([series(), broken])[2]).toEqual([null, undefined, 5]);
  });

  it('finds the values that no line would show', () => {
    expect(lonePlaces([1, null, 2, 3, null, 4])).toEqual([0, 5]);
    expect(lonePlaces([undefined, 7, undefined])).toEqual([1]);
    expect(lonePlaces([1, undefined, 2])).toEqual([]);
    expect(lonePlaces([null, null])).toEqual([]);
  });
});

describe('smoothing', () => {
  it('leaves a straight line where it is, away from its ends', () => {
    const steps = Array.from({ length: 101 }, (_, i) => i);
    const line = series({ steps, values: steps.map(step => 2 * step) });
    expect(smoothed(line, 4)[50]).toBeCloseTo(100, 6);
  });

  it('keeps gaps and averages across them', () => {
    const broken = series({ steps: [1, 2, 3], values: [4, null, 4] });
    expect(smoothed(broken, 10)).toEqual([4, null, 4]);
  });

  it('weighs points by their distance in steps', () => {
    const near = smoothed(series({ steps: [0, 1], values: [0, 1] }), 1)[0] as number;
    const far = smoothed(series({ steps: [0, 50], values: [0, 1] }), 1)[0] as number;
    expect(near).toBeGreaterThan(0.2);
    expect(far).toBeLessThan(1e-9);
  });

  it('is not for short curves, nor for validations', () => {
    const steps = Array.from({ length: 120 }, (_, i) => i + 1);
    const long = series({ steps, values: steps });
    const spanOf = (...curves: IChartSeries[]): number => smoothingSpan(chart(...curves));
    expect(spanOf(long)).toBeGreaterThan(0);
    expect(spanOf({ ...long, kind: 'points' })).toBe(0);
    expect(spanOf({ ...long, is_faint: true })).toBe(0);
    expect(spanOf(series())).toBe(0);
    expect(spanOf()).toBe(0);
  });

  it('is alike for all curves of a chart, however long they are', () => {
    const noise = (n: number): IChartSeries => {
      const steps = Array.from({ length: n }, (_, i) => i + 1);
      return series({ kind: 'line', steps, values: steps.map(step => step % 2) });
    };
    const columns = plotColumns(chart(noise(264), noise(974)), {
      ...{ range: [0, 974], axis: 'step', logX: false, logY: false, smooth: true },
      stepsPerEpoch: null
    });
    const [, , short, , long] = columns;
    expect(short?.[100]).toBeCloseTo(long?.[100] as number, 3);
    expect(short?.[101]).toBeCloseTo(long?.[101] as number, 3);
  });
});

describe('reading a curve', () => {
  it('finds the newest point at or before a step', () => {
    const sparse = series({ steps: [10, 20, 30], values: [1, 2, 3] });
    expect([9, 10, 15, 30, 99].map(step => placeAt(sparse, step))).toEqual([-1, 0, 0, 2, 2]);
  });

  it('gives a table the steps of the validations, or else some of all', () => {
    const steps = Array.from({ length: 100 }, (_, i) => i + 1);
    const dense = series({ steps, values: steps });
    const sparse = series({ kind: 'points', steps: [22, 44], values: [1, 2] });
    expect(tableSteps(chart(dense, sparse), 5)).toEqual([22, 44]);
    expect(tableSteps(chart(dense), 4)).toEqual([1, 34, 67, 100]);
  });
});

describe('clock', () => {
  it("goes on by the browser's clock, whatever that shows", () => {
    const clock = new Clock();
    clock.accept(1000, 1060);
    expect(clock.time(1070)).toBe(1010);
    expect(clock.isStale(1070)).toBe(false);
  });

  it('stands still when there is no news', () => {
    const clock = new Clock();
    clock.accept(1000, 1000);
    expect(clock.isStale(1031)).toBe(true);
    expect(clock.time(1031)).toBe(1000);
    clock.accept(1032, 1032);
    expect(clock.isStale(1033)).toBe(false);
  });

  it('knows a state that comes out of a saved notebook', () => {
    const clock = new Clock();
    clock.accept(1000, 90_000);
    expect(clock.isStale(90_001)).toBe(true);
    clock.accept(1001, 90_002); // it lives after all: the clocks differ
    expect(clock.isStale(90_003)).toBe(false);
  });
});
