/** Fetches the bundle of the tabs from the kernel, once for all views of a model's page. */
import * as core from './core.js';
import type { Ask } from './model/questions.js';
import type { LoadTabs, MakeTabs } from './tabs/lazy.js';
import type { ITabsAnswer } from './model/answers.js';

interface IBundle {
  default: (shared: typeof core) => MakeTabs;
}

let fetched: Promise<MakeTabs> | undefined;

export function tabsFrom(ask: Ask): LoadTabs {
  return async () => {
    try {
      return await (fetched ??= fetchTabs(ask));
    } catch (error) {
      fetched = undefined; // opening a tab tries again
      throw error;
    }
  };
}

async function fetchTabs(ask: Ask): Promise<MakeTabs> {
  const { text } = await ask<ITabsAnswer>('tabs', {});
  const url = URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
  try {
    const bundle = (await import(/* @vite-ignore */ url)) as IBundle;
    return bundle.default(core);
  } finally {
    URL.revokeObjectURL(url);
  }
}
