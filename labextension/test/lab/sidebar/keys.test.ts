import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { placeAfter, Selection, TypeAhead } from '../../../src/lab/sidebar/keys.js';
import { Heights } from '../../../src/lab/sidebar/windowing.js';

describe('rows that can be seen', () => {
  const heights = new Heights();
  heights.set([60, 100, 60, 60, ...Array.from({ length: 10_000 }, () => 40)]);

  it('are few, however many there are', () => {
    const { first, end } = heights.range(200_000, 400);
    expect(end - first).toBeLessThan(20);
    expect(heights.topOf(first)).toBeLessThanOrEqual(200_000);
    expect(heights.topOf(end)).toBeGreaterThanOrEqual(200_400);
  });

  it('are found by their own heights', () => {
    expect([0, 59, 60, 159, 160, 1e9].map(y => heights.at(y))).toEqual([0, 0, 1, 1, 2, 10_003]);
    expect(heights.total).toBe(280 + 400_000);
  });

  it('are none where there is no height or no row', () => {
    expect(heights.range(0, 0)).toEqual({ first: 0, end: 0 });
    expect(new Heights().range(0, 400)).toEqual({ first: 0, end: 0 });
  });

  it('are scrolled to as little as possible', () => {
    expect(heights.scrollTo(1, 0, 400)).toBe(0);
    expect(heights.scrollTo(0, 100, 400)).toBe(0);
    expect(heights.scrollTo(10, 0, 400)).toBe(280 + 7 * 40 - 400);
  });
});

describe('keys', () => {
  it('move, stop at the ends, and begin at the first row', () => {
    expect(placeAfter('ArrowDown', -1, 5, 3)).toBe(0);
    expect(placeAfter('ArrowUp', 0, 5, 3)).toBe(0);
    expect(placeAfter('PageDown', 1, 5, 3)).toBe(3);
    expect(placeAfter('End', 1, 5, 3)).toBe(4);
    expect(placeAfter('Home', 4, 5, 3)).toBe(0);
    expect(placeAfter('F2', 4, 5, 3)).toBeNull();
    expect(placeAfter('ArrowDown', -1, 0, 3)).toBeNull();
  });

  describe('letters', () => {
    beforeEach(() => void vi.useFakeTimers());
    afterEach(() => void vi.useRealTimers());
    const names = ['alpha', 'beta', 'Bert', 'gamma'];
    const nameAt = (place: number): string => names[place] ?? '';

    it('find the beginning of a name; one letter goes on from row to row', () => {
      const typed = new TypeAhead();
      expect(typed.type('b', nameAt, 0, 4)).toBe(1);
      expect(typed.type('b', nameAt, 1, 4)).toBe(2);
      vi.advanceTimersByTime(1000);
      expect(typed.type('b', nameAt, 2, 4)).toBe(1);
      expect(typed.type('e', nameAt, 1, 4)).toBe(1);
      expect(typed.type('r', nameAt, 1, 4)).toBe(2);
      expect(typed.type('x', nameAt, 2, 4)).toBe(-1);
    });
  });
});

describe('a selection', () => {
  it('extends from the row chosen last', () => {
    const selection = new Selection();
    selection.toggle(3);
    selection.extend(5, [1, 2, 3, 4, 5]);
    expect([...selection.keys]).toEqual([3, 4, 5]);
    selection.toggle(4);
    expect(selection.keys.has(4)).toBe(false);
  });

  it('forgets what is not there any more', () => {
    const selection = new Selection();
    [1, 2].forEach(key => selection.toggle(key));
    expect(selection.keep(key => key === 2)).toBe(true);
    expect([...selection.keys]).toEqual([2]);
    expect(selection.keep(key => key === 2)).toBe(false);
  });
});
