// @vitest-environment happy-dom
import './jupyterlab.js';
import { english } from '../../../src/model/trans.js';
import { beforeEach, expect, test, vi } from 'vitest';

import {
  groupsOf,
  innermost,
  nameOf,
  rangesOf,
  shortened,
  textOf
} from '../../../src/lab/running/stacks.js';
import type { IPlace } from '../../../src/lab/running/ranktarget.js';
import { StackView } from '../../../src/lab/running/stackview.js';
import { FakeDet } from './fake.js';
import type { IRankStack } from '../../../src/model/answers.js';

const TRAINS = '  Cell In[5], line 3, in train_batch\n    loss = self.model(x)\n';
const WAITS = `${TRAINS}  File "/env/lib/python3.11/site-packages/torch/dist.py", line 9, in all_reduce\n    work.wait()\n`;

const said = (rank: number, stack: string, error = ''): IRankStack => ({ rank, stack, error });
const FOUR = [said(0, WAITS), said(1, WAITS), said(2, TRAINS), said(3, WAITS)];

test('equal stacks are told once, the rarest first, those that are silent before', () => {
  expect(groupsOf(FOUR).map(({ ranks }) => ranks)).toEqual([[2], [0, 1, 3]]);
  const [silent] = groupsOf([...FOUR, said(4, '', 'rank 4 does not answer')]);
  expect(silent).toEqual({ ranks: [4], text: 'rank 4 does not answer', isSilent: true });
});

test('ranks are named in ranges', () => {
  expect(rangesOf([0, 1, 2, 5, 7, 8])).toBe('0–2, 5, 7–8');
  const names = (stacks: IRankStack[]): string[] =>
    groupsOf(stacks).map(group => nameOf(group, stacks.length, english));
  expect(names(FOUR)).toEqual(['Rank 2', 'Ranks 0–1, 3']);
  expect(names([said(0, TRAINS), said(1, TRAINS)])).toEqual(['All 2 ranks']);
  expect(names([said(0, TRAINS)])).toEqual(['Rank 0']);
});

test('the innermost function is named, and places of packages are left out', () => {
  expect(innermost(WAITS)).toBe('all_reduce');
  expect(innermost(TRAINS)).toBe('train_batch');
  expect(innermost('')).toBe('');
  expect(shortened(WAITS)).toContain('\nFile "torch/dist.py", line 9');
});

test('a copy has all of it', () => {
  expect(textOf(FOUR, english)).toBe(`Rank 2:\n${TRAINS}\nRanks 0–1, 3:\n${WAITS}`);
});

let det: FakeDet;
beforeEach(() => {
  vi.clearAllMocks();
  det = new FakeDet();
});

async function shown(place: IPlace = { trial_id: 3 }): Promise<StackView> {
  const view = new StackView(det.asDet, place);
  await view.refresh();
  return view;
}

const headings = (view: StackView): string[] =>
  [...view.node.querySelectorAll('h3')].map(heading => heading.textContent);

test('stacks are asked of the ranks and shown side by side', async () => {
  det.ask.mockResolvedValue({ trial_id: 3, stacks: FOUR });
  const view = await shown();
  expect(det.ask).toHaveBeenCalledWith(11, 'stacks', { trial_id: 3 });
  expect(headings(view)).toEqual(['Rank 2in train_batch', 'Ranks 0–1, 3in all_reduce']);
  await view.refresh();
  expect(det.get).toHaveBeenCalledTimes(1);
  expect(det.ask).toHaveBeenCalledTimes(2);
});

test('what ranks say is text, never markup', async () => {
  const hostile = '  Cell In[1], line 1, in <img src=x onerror=alert(1)>\n';
  det.ask.mockResolvedValue({ trial_id: 3, stacks: [said(0, hostile), said(1, '', '<b>no</b>')] });
  const view = await shown();
  expect(view.node.querySelector('img, b')).toBeNull();
  expect(view.node.textContent).toContain('<b>no</b>');
});

test('one rank can be asked, and then all', async () => {
  det.ask.mockResolvedValue({ trial_id: 3, stacks: [said(2, TRAINS)] });
  const view = await shown({ trial_id: 3, rank: 2 });
  expect(det.ask).toHaveBeenLastCalledWith(11, 'stacks', { trial_id: 3, rank: 2 });
  const all = [...view.node.querySelectorAll('button')].find(
    ({ textContent }) => textContent === 'All Ranks'
  );
  expect(all?.hidden).toBe(false);
  all?.click();
  await Promise.resolve();
  expect(det.ask).toHaveBeenLastCalledWith(11, 'stacks', { trial_id: 3 });
});

test('a refusal is said above the last stacks, and goes when there are new ones', async () => {
  det.ask.mockResolvedValueOnce({ trial_id: 3, stacks: FOUR });
  const view = await shown();
  det.ask.mockRejectedValueOnce(new Error('trial 3 has no ranks now: it is over (completed)'));
  await view.refresh();
  expect(view.node.querySelector('[role=alert]')?.textContent).toContain('it is over (completed)');
  expect(headings(view)).toHaveLength(2);
  det.ask.mockResolvedValueOnce({ trial_id: 3, stacks: FOUR });
  await view.refresh();
  expect(view.node.querySelector('[role=alert]')).toBeNull();
});

test('of two requests the later counts', async () => {
  let late: (value: unknown) => void = () => undefined;
  det.ask.mockReturnValueOnce(new Promise(resolve => (late = resolve)));
  const view = new StackView(det.asDet, { trial_id: 3 });
  const first = view.refresh();
  await Promise.resolve();
  det.ask.mockResolvedValueOnce({ trial_id: 3, stacks: [said(0, TRAINS)] });
  await view.refresh();
  late({ trial_id: 3, stacks: FOUR });
  await first;
  expect(headings(view)).toEqual(['Rank 0in train_batch']);
});
