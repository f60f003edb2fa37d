// @vitest-environment happy-dom
import { expect, it } from 'vitest';

import type { IPicture } from '../src/charts/picture.js';
import { csvOf } from '../src/charts/saving.js';
import { lineOf, svgOf, type ISvgLook } from '../src/charts/svg.js';

const picture: IPicture = {
  title: 'loss <b>',
  kind: 'lines',
  x: [0, 1, 2, 3],
  curves: [
    { label: 'training', color: 'blue', values: [4, 3, null, 1], average: [4, 3, null, 1] },
    {
      label: 'a, "b"',
      color: 'red',
      isDashed: true,
      hasDots: true,
      values: [undefined, 2, undefined, undefined],
      band: {
        low: [undefined, 1, undefined, undefined],
        high: [undefined, 3, undefined, undefined]
      }
    }
  ],
  text: String,
  marks: [{ x: 2, label: 'lr=0.1' }],
  empty: ''
};

const look = {
  theme: { ground: 'white', strong: 'black', text: 'gray', grid: 'silver' },
  resolved: (color: string) => color
} as unknown as ISvgLook;

/** A plot of 100 by 50 in which a value is ten pixels. */
const plot = {
  width: 140,
  height: 80,
  bbox: { left: 60, top: 20, width: 200, height: 100 },
  over: { clientWidth: 100 },
  data: [picture.x, ...picture.curves.map(one => one.values)],
  valToPos: (value: number, axis: string) => (axis === 'x' ? 10 * value : 50 - 10 * value),
  axes: [
    { _splits: [0, 2], _values: ['0', '2'] },
    { _splits: [1], _values: [null] }
  ]
} as unknown as Parameters<typeof svgOf>[1];

const drawn = (svg: string): Document => new DOMParser().parseFromString(svg, 'image/svg+xml');

it('an SVG has title, names, ticks, curves, dots and marks, and nothing to execute', () => {
  const svg = svgOf(picture, plot, look);
  const page = drawn(svg);
  const words = [...page.querySelectorAll('text')].map(one => one.textContent);
  expect(words).toEqual(['loss <b>', 'training', 'a, "b"', '0', '2', '', 'lr=0.1']);
  expect(page.querySelectorAll('circle').length).toBe(1);
  expect(svg).toContain('d="M30 60L40 70M60 90"'); // 3 is beyond a gap
  expect(svg).not.toMatch(/<script|href|<b>/);
});

it('a stack is drawn from its top to its bottom', () => {
  const svg = svgOf({ ...picture, kind: 'stack', marks: [] }, plot, look);
  const fills = [...drawn(svg).querySelectorAll('g path')].map(one => one.getAttribute('fill'));
  expect(fills).toEqual(['white', 'red', 'white', 'blue']);
});

it('a line goes on where nothing was measured, and stops where that was not finite', () => {
  const same = (value: number): number => value;
  expect(lineOf([0, 1, 2], [5, undefined, 7], same, same)).toBe('M0 5L2 7');
  expect(lineOf([0, 1, 2], [5, null, 7], same, same)).toBe('M0 5M2 7');
});

it('a label in a CSV is no formula', () => {
  const [curve] = picture.curves;
  if (curve === undefined) {
    throw new Error('the picture has no curve');
  }
  const curves = ['=1+1', '-a', '@x'].map(label => ({ ...curve, label }));
  const [head] = csvOf({ ...picture, curves }, 'step').split('\r\n');
  expect(head).toBe("step,'=1+1,'-a,'@x");
});

it('a CSV has a row for each place with a value, and what lies between', () => {
  expect(csvOf(picture, 'step').split('\r\n')).toEqual([
    'step,training,"a, ""b""","a, ""b"" (lowest)","a, ""b"" (highest)"',
    '0,4,,,',
    '1,3,2,1,3',
    '3,1,,,',
    ''
  ]);
});
