// @vitest-environment happy-dom
import './jupyterlab.js';
import { Signal } from '@lumino/signaling';
import { Title, Widget } from '@lumino/widgets';
import { expect, test } from 'vitest';

import { configureConsoles } from '../../../src/lab/running/consoles.js';
import { english } from '../../../src/model/trans.js';

/** A console as JupyterLab restores it: its kernel is known later, and forgotten when it ends. */
function restored() {
  const owner = {};
  const context = {
    session: null as { kernel: { name: string } } | null,
    kernelPreference: {},
    kernelChanged: new Signal<object, void>(owner)
  };
  const title = new Title<Widget>({ owner: new Widget(), label: 'Console' });
  return { sessionContext: context, title };
}

function tended(kernel: string) {
  const one = restored();
  const look = configureConsoles(
    { widgets: () => [one] as unknown as IterableIterator<Widget> },
    english
  );
  look();
  look(); // the layout has changed
  one.sessionContext.session = { kernel: { name: kernel } };
  one.sessionContext.kernelChanged.emit();
  one.title.label = 'as it is called';
  expect(one.title.label).toBe('as it is called');
  one.sessionContext.session = null;
  one.sessionContext.kernelChanged.emit();
  one.title.label = 'Console';
  return one;
}

test('the console of a rank restarts without a question, and is known when the rank has ended', () => {
  const { sessionContext, title } = tended('det-trial-3-rank-1');
  expect(sessionContext.kernelPreference).toEqual({ skipKernelRestartDialog: true });
  expect(title.label).toBe('Trial 3, rank 1 (ended)');
});

test('other consoles are left alone', () => {
  const { sessionContext, title } = tended('python3');
  expect(sessionContext.kernelPreference).toEqual({});
  expect(title.label).toBe('Console');
});
