// @vitest-environment happy-dom
import '../shell/jupyterlab.js';
import { commands, FakeDrawing, FakeServer, settle } from './fakes.js';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { ComparisonPanel } from '../../../src/lab/page/comparisonpanel.js';
import { ExperimentPanel } from '../../../src/lab/page/experimentpanel.js';
import { Looks } from '../../../src/lab/page/looks.js';
import { OpenNotebooks } from '../../../src/lab/page/notebooks.js';
import type { IPanelOptions } from '../../../src/lab/page/pagepanel.js';
import { state } from '../../samples.js';

let server: FakeServer;
let drawing: FakeDrawing;
let options: IPanelOptions;

beforeEach(() => {
  server = new FakeServer();
  drawing = new FakeDrawing();
  options = {
    shared: server.asDet,
    looks: new Looks(null, 'test'),
    notebooks: new OpenNotebooks(null),
    commands,
    load: drawing.load
  };
});

afterEach(() => {
  document.body.replaceChildren();
});

const said = (panel: { node: HTMLElement }): string => {
  const line = panel.node.querySelector<HTMLElement>('.det-page-said');
  return line === null || line.hidden ? '' : line.textContent;
};

async function opened(): Promise<ExperimentPanel> {
  const panel = new ExperimentPanel(options, 3);
  await settle();
  server.socket.last.onVersion(state({ id: 3, name: '<b>x</b>', status_word: 'Running' }));
  await panel.opened;
  return panel;
}

it('says what it waits for until there is something to draw', async () => {
  const panel = new ExperimentPanel(options, 3);
  expect(said(panel)).toBe('Loading experiment 3…');
  await settle();
  server.socket.last.onVersion(state({ id: 3 }));
  await panel.opened;
  expect(said(panel)).toBe('');
  expect(panel.node.contains(drawing.drawn[0]?.node ?? null)).toBe(true);
});

it('has the name and the state in its title, as text', async () => {
  const panel = await opened();
  expect(panel.title.label).toBe('<b>x</b> · Running');
  server.socket.last.onVersion(state({ id: 3, name: 'y', status_word: 'Completed' }));
  expect(panel.title.label).toBe('y · Completed');
  expect(panel.node.getAttribute('data-det-experiment')).toBe('3');
});

it('says why there is nothing to draw', async () => {
  const panel = new ExperimentPanel(options, 3);
  await settle();
  server.socket.last.onError('experiment 3 was deleted');
  await panel.opened;
  expect(said(panel)).toBe('experiment 3 was deleted');
  expect(drawing.drawn).toEqual([]);
});

it('says which experiments there are not, instead of words for other front ends', async () => {
  server.experiments.isReady = true;
  const page = new ExperimentPanel(options, 3);
  await settle();
  server.socket.last.onError('there is no experiment 3; `list` shows those that are');
  await page.opened;
  expect(said(page)).toBe('There is no experiment 3; it may have been deleted.');
  const comparison = new ComparisonPanel(options, [3, 4]);
  await comparison.opened;
  server.socket.last.onError('there is no experiment 3; `list` shows those that are');
  expect(said(comparison)).toContain('There is no experiment 4;');
});

it('says why its code cannot be loaded', async () => {
  const error = vi.spyOn(console, 'error').mockReturnValue();
  options.load = () => Promise.reject(new Error('chunk 12 is gone.'));
  const panel = new ExperimentPanel(options, 3);
  await panel.opened;
  expect(said(panel)).toBe('This page cannot be drawn: chunk 12 is gone. Reload the browser tab.');
  error.mockRestore();
});

it('shows what is wanted of it, also when it was wanted before it was there', async () => {
  const panel = new ExperimentPanel(options, 3);
  panel.present({ tab: 'metrics', trialId: 17 });
  await settle();
  server.socket.last.onVersion(state({ id: 3 }));
  await panel.opened;
  const drawn = drawing.drawn[0];
  expect(drawn?.calls).toEqual([
    ['choose', 17],
    ['tab', 'metrics']
  ]);
  panel.present({ trialId: 18, logs: { rank: 1 } });
  expect(drawn?.calls.at(-1)).toEqual(['logs', 18, 1]);
});

it('follows nothing after it was closed, also while it was being opened', async () => {
  const early = new ExperimentPanel(options, 3);
  early.dispose();
  await settle();
  expect(server.socket.followers).toEqual([]);
  const panel = await opened();
  panel.dispose();
  panel.dispose();
  expect(server.socket.followers[0]?.isDisposed).toBe(true);
  expect(drawing.drawn[0]?.isDisposed).toBe(true);
});

it('shows the banner while the connection is not up', async () => {
  const panel = await opened();
  const banner = panel.node.querySelector<HTMLElement>('.jp-DetLinkBanner');
  server.setLink({
    state: 'no-master',
    sentence: 'The master was stopped.',
    command: 'det master start'
  });
  expect(banner?.hidden).toBe(false);
  expect(banner?.textContent).toContain('det master start');
  server.setLink({ state: 'up' });
  expect(banner?.hidden).toBe(true);
});

it('compares experiments, and says since when the comparison stands still', async () => {
  const shown: unknown[] = [];
  const node = document.createElement('article');
  const core = {
    drawComparison: () => ({
      node,
      update: (one: unknown) => shown.push(one),
      dispose: () => undefined
    })
  };
  const panel = new ComparisonPanel(
    { ...options, load: () => Promise.resolve(core as never) },
    [3, 4]
  );
  await panel.opened;
  expect(server.socket.last).toMatchObject({
    name: 'comparison',
    args: { experiment_ids: [3, 4] }
  });
  expect(panel.title.label).toBe('Compare 3, 4');
  const comparison = { title: 'Experiments 3 and 4', as_of: 1000 };
  server.socket.last.onVersion(comparison);
  expect(shown).toEqual([comparison]);
  expect(said(panel)).toBe('');
  server.setLink({ state: 'cut' });
  expect(said(panel)).toMatch(/^Not live: this is as of /);
  server.setLink({ state: 'up' });
  expect(said(panel)).toBe('');
  server.socket.last.onError('experiment 4 was deleted');
  expect(said(panel)).toMatch(/as of .* experiment 4 was deleted$/);
  panel.dispose();
});
