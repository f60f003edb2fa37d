// @vitest-environment happy-dom
import { expect, it } from 'vitest';

import { placedMarks } from '../src/charts/marklabels.js';
import type { ICurve, IPicture } from '../src/charts/picture.js';
import { PicturePlot } from '../src/charts/pictureplot.js';
import { movesOf } from '../src/charts/uplotparts.js';
import { english } from '../src/model/trans.js';

const room = { from: 0, to: 200, place: (x: number) => x, widthOf: (s: string) => 5 * s.length };

it('labels of marks that are close together are in rows, and those without room are left out', () => {
  const marks = [10, 20, 30, 40, 90].map(x => ({ x, label: 'lr 0.1 → 0.2' }));
  const placed = placedMarks(marks, room);
  expect(placed.map(one => [one.row, one.label !== ''])).toEqual([
    [0, true],
    [1, true],
    [2, true],
    [0, false],
    [0, true]
  ]);
});

it('the label of a mark ends within the plot', () => {
  const [left, right] = placedMarks(
    [
      { x: 80, label: 'x'.repeat(50) },
      { x: 190, label: 'lr 0.1' },
      { x: 201, label: 'beyond' }
    ],
    room
  );
  expect(left).toMatchObject({ align: 'left', labelAt: 84, label: `${'x'.repeat(22)}…` });
  expect(right).toMatchObject({ align: 'right', labelAt: 186, label: 'lr 0.1', row: 1 });
});

it('a notebook does not see that a plot is moved: it would select cells instead', () => {
  const ranges: unknown[] = [];
  const { cursor } = movesOf({
    syncKey: '',
    range: () => [0, 100],
    onCursor: () => undefined,
    onZoom: range => ranges.push(range),
    cursorColor: () => ''
  });
  const [notebook, over] = [document.createElement('div'), document.createElement('div')];
  notebook.append(over);
  document.body.append(notebook);
  Object.defineProperty(over, 'clientWidth', { value: 50 });
  const plot = { over } as unknown as Parameters<NonNullable<typeof bound>>[0];
  const bound = cursor?.bind?.mousedown;
  const listener = bound?.(plot, over, () => null);
  over.addEventListener('mousedown', event => listener?.(event));
  let seen = 0;
  notebook.addEventListener('mousedown', () => (seen += 1));
  const init = { bubbles: true, shiftKey: true };
  over.dispatchEvent(new MouseEvent('mousedown', { ...init, clientX: 20 }));
  document.dispatchEvent(new MouseEvent('mousemove', { ...init, clientX: 10 }));
  document.dispatchEvent(new MouseEvent('mouseup', init));
  document.dispatchEvent(new MouseEvent('mousemove', { ...init, clientX: 0 }));
  expect([seen, ranges]).toEqual([0, [[20, 120]]]);
});

it('a legend says how many curves of what is shown now have no name', () => {
  const curve = (label: string, isFaint: boolean): ICurve => ({
    ...{ label, isFaint, color: 'red', values: [1] }
  });
  const picture = (curves: ICurve[]): IPicture => ({
    ...{ title: 'a', kind: 'lines', x: [0], curves, text: String, empty: '' }
  });
  const plot = new PicturePlot({
    trans: english,
    syncKey: '',
    frame: () => ({ range: [0, 1], axis: 'time', logX: false }),
    onZoom: () => undefined
  });
  const said = (curves: ICurve[]): string => {
    plot.update(picture(curves));
    return plot.node.querySelector('.det-legend')?.textContent ?? '';
  };
  expect(said([curve('one', false), curve('two', false)])).toBe('onetwo');
  expect(said([curve('one', false)])).toBe('one');
  expect(said([curve('one', false), curve('two', true)])).toBe('one1 other is faint');
});
