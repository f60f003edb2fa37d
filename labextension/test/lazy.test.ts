// @vitest-environment happy-dom
import { beforeEach, expect, it, vi } from 'vitest';

import { makeTabs } from '../src/alltabs.js';
import { tabsFrom } from '../src/fetching.js';
import type { Ask } from '../src/model/questions.js';
import { Settings } from '../src/model/viewsettings.js';
import { english } from '../src/model/trans.js';
import { LazyTabs, type LoadTabs } from '../src/tabs/lazy.js';
import type { ITabContext } from '../src/tabs/tab.js';
import { ExperimentView } from '../src/view.js';
import { state } from './samples.js';

const ask: Ask = () => new Promise(() => undefined);
const context: ITabContext = {
  requests: { trans: english, onCommand: () => Promise.resolve(), slowHint: '' },
  ask,
  settings: new Settings(),
  makeChart: () => ({}) as never
};

let said: string[];
let host: HTMLElement;

const load: LoadTabs = () =>
  Promise.resolve(() =>
    ['one', 'two'].map(id => ({
      id,
      label: id,
      open: () => {
        said.push(`${id} opened`);
        return {
          update: ({ as_of }) => said.push(`${id} updated ${as_of}`),
          setShown: isShown => said.push(`${id} ${isShown ? 'shown' : 'hidden'}`),
          dispose: () => said.push(`${id} disposed`)
        };
      }
    }))
  );

const settle = (): Promise<void> => new Promise(resolve => setTimeout(resolve, 0));

beforeEach(() => {
  said = [];
  host = document.createElement('div');
});

it('a tab becomes what it is when its code is there, with the newest state', async () => {
  const panel = new LazyTabs(context, load).tab('two', 'Two').open(host);
  panel.setShown?.(true);
  panel.update?.(state({ as_of: 1 }));
  panel.update?.(state({ as_of: 2 }));
  expect(host.textContent).toContain('Fetching');
  await settle();
  expect(said).toEqual(['two opened', 'two shown', 'two updated 2']);
  expect(host.textContent).toBe('');
  panel.setShown?.(false);
  panel.dispose();
  expect(said.slice(3)).toEqual(['two hidden', 'two disposed']);
});

it('a tab that was left before its code came stays quiet, and one that is gone is not opened', async () => {
  const tabs = new LazyTabs(context, load);
  const left = tabs.tab('one', '').open(host);
  left.setShown?.(true);
  left.setShown?.(false);
  const gone = tabs.tab('two', '').open(host);
  gone.setShown?.(true);
  gone.dispose();
  await settle();
  expect(said).toEqual(['one opened', 'one hidden']);
});

it('says why the code does not come, and tries again when it is opened again', async () => {
  const loading = vi.fn(load).mockRejectedValueOnce(new Error('the kernel is gone'));
  const panel = new LazyTabs(context, loading).tab('one', '').open(host);
  panel.setShown?.(true);
  await settle();
  expect(host.textContent).toBe('the kernel is gone');
  panel.setShown?.(false);
  panel.setShown?.(true);
  await settle();
  expect(said).toEqual(['one opened', 'one shown']);
});

it('the code is asked for again when it did not come', async () => {
  const failing = vi.fn().mockRejectedValue(new Error('no'));
  const fetch = tabsFrom(failing as Ask);
  await expect(fetch()).rejects.toThrow('no');
  await expect(fetch()).rejects.toThrow('no');
  expect(failing.mock.calls).toEqual([
    ['tabs', {}],
    ['tabs', {}]
  ]);
});

it('the view names all tabs that the second bundle has, by the same words', () => {
  const view = new ExperimentView({
    onCommand: () => Promise.resolve(),
    makeChart: () => ({}) as never,
    ask,
    loadTabs: load
  });
  const named = [...view.node.querySelectorAll('[role=tab]')].map(one => one.textContent);
  expect(named).toEqual([
    ...['Overview', 'Metrics', 'Timings', 'System', 'Logs', 'Config', 'Checkpoints']
  ]);
  const fetched = makeTabs(context);
  expect(named.filter(name => name !== 'Overview' && name !== 'Logs')).toEqual(
    fetched.map(tab => tab.label)
  );
  fetched.forEach(({ id }) =>
    expect(view.node.querySelector(`[role=tabpanel][data-tab=${id}]`)).not.toBeNull()
  );
  view.dispose();
});
