import { describe, expect, it } from 'vitest';

import {
  layoutParallel,
  nearestLine,
  toRange,
  type IParallelAxis
} from '../src/search/parallel.js';
import { layoutSteps } from '../src/search/progresspicture.js';
import { layoutRungs, nearestDot, nextDot, type IDot } from '../src/search/rungs.js';
import { axis, row, search } from './samples.js';

const SIZE = { width: 600, height: 240 };

describe('rungs', () => {
  const rows = [
    row({ id: 1, rungs: [0.5, 0.9], aim: 1, status: 'completed' }),
    row({ id: 2, rungs: [0.3], aim: 0 }),
    row({ id: 3, rungs: [], aim: 0, status: 'running', latest: null }),
    row({ id: 4, bracket: null, rungs: [], marks: [] })
  ];
  const layout = layoutRungs(search(rows), SIZE);
  const at = (id: number, rung: number): IDot =>
    layout.dots.find(dot => dot.row.id === id && dot.rung === rung) as IDot;

  it('are columns side by side, each with its dots inside', () => {
    expect(layout.columns.map(one => [one.left, one.width])).toEqual([
      [46, 277],
      [323, 277]
    ]);
    expect(layout.dots).toHaveLength(4);
    for (const dot of layout.dots) {
      const column = layout.columns[dot.rung];
      expect(dot.x).toBeGreaterThan(column?.left as number);
      expect(dot.x).toBeLessThan((column?.left as number) + (column?.width as number));
    }
  });

  it('have what is better higher up', () => {
    expect(at(1, 1).y).toBeLessThan(at(1, 0).y);
    expect(at(1, 0).y).toBeLessThan(at(2, 0).y);
    const loss = layoutRungs(search(rows, { rung_axis: axis({ start: 1, end: 0 }) }), SIZE);
    const [first, second] = loss.dots.filter(dot => dot.row.id === 1);
    expect(first?.y).toBeLessThan(second?.y as number);
  });

  it('have trials without a value in a strip below all others', () => {
    expect(at(3, 0).y).toBe(layout.stripY);
    expect(layout.stripY).toBeGreaterThan(at(2, 0).y);
    expect(layoutRungs(search(rows.slice(0, 2)), SIZE).stripY).toBeNull();
  });

  it('have smaller marks where there are many', () => {
    const many = Array.from({ length: 1000 }, (_, i) => row({ id: i }));
    expect(layoutRungs(search(rows), SIZE).markSize).toBe(1);
    expect(layoutRungs(search(many), SIZE).markSize).toBe(0.6);
  });

  it('are found by pointing near them', () => {
    const dot = at(1, 1);
    expect(nearestDot(layout.dots, dot.x + 5, dot.y - 5)).toBe(dot);
    expect(nearestDot(layout.dots, 0, 0)).toBeNull();
  });

  it('are walked by arrow keys: within a column, and to the next', () => {
    const { dots } = layout;
    expect(nextDot(dots, null, 'ArrowDown')).toBe(at(1, 1));
    expect(nextDot(dots, at(1, 1), 'ArrowLeft')).toBe(at(1, 0));
    expect(nextDot(dots, at(1, 0), 'ArrowDown')).toBe(at(2, 0));
    expect(nextDot(dots, at(2, 0), 'ArrowRight')).toBe(at(1, 1));
    expect(nextDot(dots, at(1, 0), 'ArrowUp')).toBe(at(1, 0));
    expect(nextDot(dots, at(1, 1), 'ArrowRight')).toBe(at(1, 1));
    expect(nextDot(dots, at(1, 0), 'End')).toBe(at(3, 0));
    expect(nextDot(dots, at(3, 0), 'Home')).toBe(at(1, 0));
    expect(nextDot([], null, 'ArrowDown')).toBeNull();
  });
});

describe('parallel coordinates', () => {
  const rows = [
    row({ id: 1, best: 0.9, values: [1e-4, 1] }),
    row({ id: 2, best: 0.1, values: [0.1, 0] }),
    row({ id: 3, best: null, values: [null, 0] })
  ];
  const layout = layoutParallel(search(rows), SIZE.width, SIZE.height);

  it('have an axis for each hyperparameter, and the metric last', () => {
    expect(layout.axes.map(one => [one.axis.name, one.x])).toEqual([
      ['lr', 40],
      ['optimizer.name', 297],
      ['accuracy', 554]
    ]);
  });

  it('have a line for each trial, with a gap where there is no value', () => {
    const [first, second, third] = layout.lines;
    expect(first?.ys[0]).toBe(layout.bottom);
    expect(second?.ys[0]).toBeCloseTo(layout.top, 9);
    expect(third?.ys[0]).toBeNull();
    expect(third?.ys[2]).toBeNull();
  });

  it('have the better metric higher up', () => {
    const [first, second] = layout.lines;
    expect(first?.ys[2]).toBeLessThan(second?.ys[2] as number);
    const loss = layoutParallel(search(rows, { best_axis: axis({ start: 1, end: 0 }) }), 600, 240);
    expect(loss.lines[0]?.ys[2]).toBeGreaterThan(loss.lines[1]?.ys[2] as number);
  });

  it('give the values between two heights of an axis', () => {
    const [low, high] = toRange(layout.axes[0] as IParallelAxis, layout.bottom, layout.top, layout);
    expect(low).toBeCloseTo(1e-4, 12);
    expect(high).toBeCloseTo(0.1, 12);
    const turned = { axis: axis({ start: 1, end: 0 }), x: 0 };
    expect(toRange(turned, layout.top, layout.bottom, layout)).toEqual([0, 1]);
  });

  it('find the line under the pointer', () => {
    expect(nearestLine(layout, 41, layout.bottom)?.row.id).toBe(1);
    expect(nearestLine(layout, 553, layout.lines[1]?.ys[2] as number)?.row.id).toBe(2);
    expect(nearestLine(layout, 170, layout.top - 20)).toBeNull();
    expect(nearestLine(layout, 700, layout.top)).toBeNull();
  });
});

describe('best so far', () => {
  const improvements = [
    { after_s: 10, value: 0.5, trial_id: 1 },
    { after_s: 60, value: 0.8, trial_id: 3 }
  ];

  it('goes by time up to the present', () => {
    const { points, endX } = layoutSteps(search([], { improvements }), 120, 600, 240);
    expect(points.map(point => Math.round(point.x))).toEqual([91, 317]);
    expect(points[0]?.y).toBeGreaterThan(points[1]?.y as number);
    expect(endX).toBe(588);
  });

  it('has larger values higher up, also of a loss', () => {
    const progress_axis = axis({ start: 1, end: 0 });
    const { points } = layoutSteps(search([], { improvements, progress_axis }), 120, 600, 240);
    expect(points[0]?.y).toBeGreaterThan(points[1]?.y as number);
  });

  it('has times before there is a value', () => {
    const { points, xTicks } = layoutSteps(search([]), 0, 600, 240);
    expect(points).toEqual([]);
    expect(xTicks.map(tick => tick.label)).toEqual(['0', '1 s']);
  });
});
