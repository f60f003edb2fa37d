// @vitest-environment happy-dom
import { expect, test, vi } from 'vitest';

import { Questions } from '../../../src/lab/shell/assistants.js';
import type { IApi } from '../../../src/lab/tokens.js';
import { FakeDet } from './fake.js';

const dialogs = vi.hoisted(() => [] as { text: string; click: (accept: boolean) => void }[]);
vi.mock('@jupyterlab/apputils', () => ({
  Dialog: class {
    static cancelButton = (options: object) => ({ accept: false, ...options });
    static warnButton = (options: object) => ({ accept: true, ...options });
    constructor({ body }: { body: { node: HTMLElement } }) {
      dialogs.push({ text: body.node.textContent, click: accept => this._end(accept) });
    }
    launch(): Promise<unknown> {
      return this._ended;
    }
    reject(): void {
      this._end(false);
    }
    private _end!: (accept: boolean) => void;
    private readonly _ended = new Promise(resolve => {
      this._end = accept => resolve({ button: { accept } });
    });
  }
}));

const SCHEMA_ID = 'https://github.com/det-jupyter/det_jupyter/events/question';
const asked = {
  schema_id: SCHEMA_ID,
  id: 'a1',
  title: 'An assistant asks to kill',
  text: 'One\nTwo'
};

function start() {
  dialogs.length = 0;
  const put = vi.fn<IApi['put']>().mockResolvedValue({});
  const { trans } = new FakeDet().asDet;
  const questions = new Questions({ api: { put } as never, trans });
  const told = (): unknown[] =>
    put.mock.calls.map(([path, body]) => [path, (body as { answer: string }).answer]);
  return { questions, told };
}

test.each([
  [true, 'yes'],
  [false, 'no']
])('a question is shown, and the answer is sent: %s', async (accept, answer) => {
  const { questions, told } = start();
  questions.take(asked);
  expect(dialogs.map(({ text }) => text)).toEqual(['One\nTwo']);
  dialogs[0]?.click(accept);
  await vi.waitFor(() =>
    expect(told()).toEqual([
      ['questions/a1', 'shown'],
      ['questions/a1', answer]
    ])
  );
});

test('a question that was answered elsewhere closes without an answer', async () => {
  const { questions, told } = start();
  questions.take(asked);
  questions.take({ ...asked, title: '', text: '' });
  dialogs[0]?.click(true);
  await Promise.resolve();
  expect(told()).toEqual([['questions/a1', 'shown']]);
});

test('other events are not questions', () => {
  const { questions } = start();
  questions.take({ ...asked, schema_id: 'another' });
  expect(dialogs).toEqual([]);
});
