import { describe, expect, it } from 'vitest';

import { spanText } from '../src/model/format.js';
import { layoutParallel } from '../src/search/parallel.js';
import { layoutSteps, timeTicks } from '../src/search/progresspicture.js';
import { across, layoutRungs, trialDots } from '../src/search/rungs.js';
import { layoutScatter } from '../src/search/scatter.js';
import { axisText, placeOn, roomForTicks, ticksOf, upward, valueAt } from '../src/model/scales.js';
import type { IAxis, ITrialRow } from '../src/model/state.js';
import { axis, row, search } from './samples.js';
import cases from './place-cases.json' with { type: 'json' };

describe('the saved picture and the live one', () => {
  it.each(cases.places as [Partial<IAxis>, number, number][])(
    'have on the axis %j the value %s at %s',
    (given, value, place) => {
      expect(placeOn(axis(given), value)).toBeCloseTo(place, 9);
    }
  );

  it.each(cases.across as [number, number][])('have trial %s at %s of a column', (id, share) => {
    expect(across(id)).toBeCloseTo(share, 6);
  });

  it.each(cases.dots as [Partial<ITrialRow>, unknown[]][])('have the dots of %j', (given, dots) => {
    const found = trialDots(row(given));
    expect(found.map(({ rung, mark, value }) => [rung, mark, value])).toEqual(dots);
  });
});

describe('axes', () => {
  const [lr, name] = search([]).axes as [IAxis, IAxis];

  it('have a value for each place', () => {
    expect(valueAt(axis({ start: 10, end: 20 }), 0.25)).toBe(12.5);
    expect(valueAt(axis({ start: 20, end: 10 }), 0.25)).toBe(17.5);
    expect(valueAt(lr, 1)).toBeCloseTo(0.1, 12);
    expect(valueAt(lr, placeOn(lr, 0.003))).toBeCloseTo(0.003, 12);
    expect(valueAt(name, 0.75)).toBe(1);
  });

  it('can be turned to larger values', () => {
    const turned = upward(axis({ start: 20, end: 10 }));
    expect([10, 20].map(value => placeOn(turned, value))).toEqual([0, 1]);
    expect(upward(lr)).toEqual(lr);
  });

  it('have labels beside them', () => {
    expect(ticksOf(name)).toEqual([
      { place: 0.25, label: 'sgd' },
      { place: 0.75, label: 'adam' }
    ]);
  });

  it('have room for long labels', () => {
    expect(roomForTicks(axis({ tick_labels: [] }))).toBe(46);
    expect(roomForTicks(axis({ tick_labels: ['0', '1'] }))).toBe(46);
    const long = axis({ tick_labels: ['0.9999985', '0.999999'] });
    const near = search([row()], { rung_axis: long, best_axis: long, progress_axis: long });
    const room = roomForTicks(long);
    expect(room).toBeGreaterThan(60);
    expect(layoutRungs(near, { width: 600, height: 240 }).columns[0]?.left).toBe(room);
    expect(layoutParallel(near, 600, 240).axes.at(-1)?.x).toBe(600 - room);
    expect(layoutSteps(near, 10, 600, 240).left).toBe(room);
    const scatter = { axis: lr, metric: long, isLogY: false, width: 600, height: 240 };
    expect(layoutScatter(near, scatter).left).toBe(room);
  });

  it('write values as they have them', () => {
    expect(axisText(lr, 0.005)).toBe('0.005000');
    expect(axisText({ ...lr, is_whole: true }, 16)).toBe('16');
    expect(axisText(name, 1)).toBe('adam');
    expect(axisText(name, null)).toBe('–');
  });
});

describe('time', () => {
  it('has round ticks', () => {
    expect(timeTicks(420, 4).map(spanText)).toEqual(['0', '2 min', '4 min', '6 min']);
    expect(timeTicks(9, 5)).toEqual([0, 2, 4, 6, 8]);
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
