// @vitest-environment happy-dom
import { expect, test, vi } from 'vitest';

import './jupyterlab.js';
import { StatusItem } from '../../../src/lab/shell/status.js';
import { countsText, linkText } from '../../../src/lab/shell/status.js';
import type { LinkState } from '../../../src/lab/tokens.js';
import type { IClusterState } from '../../../src/model/state.js';
import { english } from '../../../src/model/trans.js';
import { FakeDet } from './fake.js';

function cluster(devices: string[], numbers: Partial<IClusterState> = {}): IClusterState {
  const slots = devices.map((device, id) => ({ id, device }));
  return {
    agents: [{ slots }],
    summary: '6 of 8 slots are used',
    num_running: 2,
    num_waiting: 1,
    num_slots: devices.length,
    num_slots_used: 6,
    ...numbers
  } as unknown as IClusterState;
}
const gpus = (num: number): string[] => Array.from({ length: num }, () => 'NVIDIA H100');
const cpus = (num: number): string[] => Array.from({ length: num }, () => 'CPU');

test('the item counts experiments and slots', () => {
  expect(countsText(cluster(gpus(8)), english)).toBe('2 running · 1 waiting · 6/8 GPUs');
});

test('the item says what kind the slots are, and leaves out who waits when none does', () => {
  const one = { num_running: 1, num_waiting: 0, num_slots_used: 0 };
  expect(countsText(cluster(gpus(1), one), english)).toBe('1 running · 0/1 GPU');
  expect(countsText(cluster(cpus(2), one), english)).toBe('1 running · 0/2 CPU slots');
  expect(countsText(cluster([...cpus(1), ...gpus(1)], one), english)).toBe('1 running · 0/2 slots');
  expect(countsText(cluster([], one), english)).toBe('1 running · no slots');
});

test('every state of the connection but up has words of its own', () => {
  const states: LinkState[] = [
    'connecting', 'cut', 'no-extension', 'no-master', 'mismatch', 'refused'
  ]; // prettier-ignore
  const texts = states.map(state => linkText(state, english));
  expect(new Set(texts).size).toBe(states.length);
  expect(linkText('up', english)).toBeNull();
});

test('the item is a button that shows numbers, or a shape and what is wrong', () => {
  const det = new FakeDet();
  const onClick = vi.fn();
  const item = new StatusItem(det.asDet, onClick);
  const button = item.node.querySelector('button') as HTMLButtonElement;
  const shape = item.node.querySelector<HTMLElement>('.jp-DetStatus-shape') as HTMLElement;

  det.cluster.set(cluster(gpus(8)));
  expect(button.textContent).toBe('2 running · 1 waiting · 6/8 GPUs');
  expect(button.title).toContain('6 of 8 slots are used');
  expect(shape.hidden).toBe(true);

  det.setLink({ state: 'no-master', sentence: 'The master was stopped; start it.' });
  expect(button.textContent).toBe('Experiments: stopped');
  expect(button.title).toContain('The master was stopped; start it.');
  expect(shape.hidden).toBe(false);

  button.click();
  expect(onClick).toHaveBeenCalledOnce();
});

test('a summary with markup is text', () => {
  const det = new FakeDet();
  const item = new StatusItem(det.asDet, vi.fn());
  det.cluster.set({ ...cluster(gpus(8)), summary: '<img src=x onerror=alert(1)>' });
  expect(item.node.querySelector('img')).toBeNull();
});
