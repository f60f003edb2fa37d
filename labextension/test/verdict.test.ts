// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import type { IRequestContext } from '../src/dom/notice.js';
import type { Ask } from '../src/model/questions.js';
import { Settings } from '../src/model/viewsettings.js';
import type { IVerdictState } from '../src/model/state.js';
import { english } from '../src/model/trans.js';
import { OrderControls, type IOrdered } from '../src/timings/orders.js';
import type { IPanel } from '../src/tabs/tab.js';
import { systemTab } from '../src/tabs/systemtab.js';
import { timingsTab } from '../src/timings/timingstab.js';
import { VerdictBanner } from '../src/timings/verdict.js';
import { measured, seriesPage } from './seriessamples.js';
import { state, trial } from './samples.js';
import type { ISeriesPage } from '../src/model/answers.js';

const VERDICT: IVerdictState = {
  kind: 'straggler',
  word: 'waiting for a slow rank',
  tone: 'warn',
  sentence: 'Rank 1 is a straggler: try more loader workers.',
  causes: [
    {
      ...{ kind: 'straggler', word: 'waiting for a slow rank', share: 0.38, rank: 1 },
      evidence: ['It waits 20 ms for data.'],
      advice: ['num_workers: 4']
    }
  ],
  network: 'exchanges take 4 ms of 10 ms a batch; b sends 1 MB over eth0',
  shares: [
    { kind: 'compute', word: 'compute', share: 0.6 },
    { kind: 'straggler', word: 'waiting for a slow rank', share: 0.398 }
  ],
  at: 1000,
  batches: 100
};
const requests: IRequestContext = {
  trans: english,
  onCommand: () => Promise.resolve(),
  slowHint: 'The kernel is busy.'
};
const settle = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

it('says a verdict in words, with an icon, and has evidence and advice in store', () => {
  const banner = new VerdictBanner(english);
  banner.update(VERDICT);
  expect(banner.node.querySelector('[aria-live=polite]')?.textContent).toBe(
    'waiting for a slow rankRank 1 is a straggler: try more loader workers.'
  );
  expect(banner.node.querySelector('.det-verdict-kind svg')).not.toBeNull();
  const bar = banner.node.querySelector('[role=img]');
  expect(bar?.getAttribute('aria-label')).toBe('compute 60 %, waiting for a slow rank 39 %');
  const grow = [...(bar?.children ?? [])].map(one => Number((one as HTMLElement).style.flexGrow));
  expect(grow.reduce((sum, one) => sum + one)).toBeGreaterThan(1); // else they would leave room
  expect(banner.node.querySelector('details')?.textContent).toContain('num_workers: 4');
  expect(banner.node.textContent).toContain('Network: exchanges take 4 ms of 10 ms a batch;');
  const shapes = (['warn', 'text', 'good'] as const).map(tone => {
    banner.update({ ...VERDICT, kind: 'compute', tone });
    return banner.node.querySelector('.det-verdict-kind svg')?.innerHTML;
  });
  expect(new Set(shapes).size).toBe(3); // an alarm, neither, and all is well
  banner.update({ ...VERDICT, network: '' });
  expect(banner.node.querySelector<HTMLElement>('.det-verdict-network')?.hidden).toBe(true);
  banner.update(null);
  expect(banner.node.hidden).toBe(true);
});

it('leaves a verdict that has not changed alone, so that it is read aloud once', () => {
  const banner = new VerdictBanner(english);
  banner.update(VERDICT);
  const [icon] = banner.node.querySelectorAll('svg');
  banner.update({ ...VERDICT, at: 1001 });
  expect(banner.node.querySelector('svg')).toBe(icon);
});

/** A kernel that answers by what is asked of it. */
function kernel(page: ISeriesPage): { ask: Ask; asked: string[] } {
  const asked: string[] = [];
  const ask: Ask = (type, fields) => {
    asked.push(`${type} ${JSON.stringify(fields)}`);
    return Promise.resolve({ page, text: 'lr 0.1 → 0.05, from batch 7' } as never);
  };
  return { ask, asked };
}

function open(
  which: 'timings' | 'system',
  page: ISeriesPage
): { host: HTMLElement; panel: IPanel } {
  const { ask } = kernel(page);
  const context = { requests, ask, settings: new Settings(), makeChart: () => null as never };
  const host = document.createElement('div');
  const panel = (which === 'timings' ? timingsTab : systemTab)(context).open(host);
  panel.setShown?.(true);
  panel.update?.(state({ trials: [trial({ id: 3, verdict: VERDICT })] }));
  return { host, panel };
}

it('draws timings, ranks side by side, and a table with the share of each part', async () => {
  const page = seriesPage([
    measured({ name: 'forward', mid: [0.003] }),
    measured({ name: 'rest', title: 'the rest', mid: [0.001] }),
    measured({ source: 'rank:1', name: 'forward', mid: [0.004] })
  ]);
  const { host, panel } = open('timings', page);
  await settle();
  expect(host.querySelector('.det-verdict')?.textContent).toContain('straggler');
  expect(host.querySelector('.det-chart-title')?.textContent).toBe('Trial 3');
  const bars = [...host.querySelectorAll('.det-rank-bar')];
  expect(bars.map(one => one.getAttribute('aria-label'))).toEqual([
    'rank 0: 4 ms: forward, with the loss 3 ms (75 %), the rest 1 ms (25 %)',
    'rank 1: 4 ms: forward, with the loss 4 ms (100 %)'
  ]);
  const rows = [...host.querySelectorAll('.det-parts tbody tr')].map(row => row.textContent);
  expect(rows[1]).toContain('The rest25 %1 ms');
  (bars[1] as HTMLElement).click();
  await settle();
  expect(host.querySelector<HTMLSelectElement>('[aria-label=Rank]')?.value).toBe('1');
  panel.dispose();
});

it('says in words why there is nothing to draw', async () => {
  const missing = measured({ name: 'gpu_util', mid: [], missing: 'no NVIDIA driver' });
  const { host, panel } = open('system', seriesPage([missing]));
  await settle();
  expect(host.querySelector('.det-empty')?.textContent).toContain('the reasons are below');
  expect(host.querySelector('.det-missing')?.textContent).toContain('no NVIDIA driver');
  panel.dispose();
  const timings = open('timings', seriesPage([], { began_at: null }));
  await settle();
  expect(timings.host.querySelector('.det-empty')?.textContent).toContain('No timings yet');
  expect(timings.host.querySelector('.det-rank-bar')).toBeNull();
  timings.panel.dispose();
});

it('orders changes with the fields that are filled in, and says what became of them', async () => {
  const { ask, asked } = kernel(seriesPage([]));
  const controls = new OrderControls(requests, ask);
  const ordered: IOrdered = { trialId: 3, isRunning: true, changes: [], traces: [] };
  controls.update(ordered);
  const form = controls.node.querySelector('form') as HTMLFormElement;
  const submit = async (): Promise<void> => {
    form.dispatchEvent(new Event('submit', { cancelable: true }));
    await settle();
  };
  const said = (): string => controls.node.querySelector('[role=alert]')?.textContent ?? '';
  await submit();
  expect(said()).toContain('Change at least one field.');
  (form.querySelector('[name=lr]') as HTMLInputElement).value = '0.05';
  await submit();
  expect(asked).toEqual(['change {"trial_id":3,"changes":{"lr":0.05}}']);
  expect(said()).toContain('lr 0.1 → 0.05');
  controls.node.querySelector('button')?.click();
  await settle();
  expect(asked[1]).toBe('profile {"trial_id":3,"steps":10,"ranks":[0]}');
  const refused = { id: 1, trial_id: 3, steps_completed: null, text: 'lr 9', error: 'too high' };
  controls.update({ ...ordered, isRunning: false, changes: [refused] });
  expect(controls.node.querySelector('ul')?.textContent).toBe('lr 9: refused: too high');
  expect(form.closest('[hidden]')).not.toBeNull();
});
