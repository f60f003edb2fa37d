// @vitest-environment happy-dom
import { beforeEach, describe, expect, it, vi } from 'vitest';

import { h, setText } from '../../../src/dom/dom.js';
import { EndedList } from '../../../src/lab/sidebar/endedlist.js';
import { ActiveList } from '../../../src/lab/sidebar/activelist.js';
import { EndedRow, type IEndedOperations } from '../../../src/lab/sidebar/endedrow.js';
import { ActiveRow, activeHeight } from '../../../src/lab/sidebar/activerow.js';
import type { IOperations } from '../../../src/lab/sidebar/operations.js';
import { WindowedList, type IRowView } from '../../../src/lab/sidebar/list.js';
import { english } from '../../../src/model/trans.js';
import { line, rowsOf } from './samples.js';

const HEIGHT = 200;
/** On a busy computer, what is asked for is drawn in several frames (src/dom/frames.ts). */
async function nextFrame(): Promise<void> {
  for (let i = 0; i < 5; i += 1) {
    await new Promise(requestAnimationFrame);
  }
}

function sized(node: HTMLElement): HTMLElement {
  Object.defineProperty(node, 'clientHeight', { value: HEIGHT });
  document.body.append(node);
  return node;
}

const rowIndex = (row: Element): number => Number(row.getAttribute('aria-rowindex'));

function press(node: Element, key: string, more: KeyboardEventInit = {}): KeyboardEvent {
  const event = new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more });
  node.dispatchEvent(event);
  return event;
}

/** Operations that only note what they were asked for. */
class FakeDeeds implements IOperations {
  readonly calls: unknown[] = [];
  open(...asked: unknown[]): void {
    this.calls.push(['open', ...asked]);
  }
  change(...asked: unknown[]): Promise<void> {
    return this._note('change', asked);
  }
  carryOut(...asked: unknown[]): Promise<void> {
    return this._note('carryOut', asked);
  }
  editLabels(...asked: unknown[]): Promise<void> {
    return this._note('editLabels', asked);
  }
  rename(...asked: unknown[]): Promise<void> {
    return this._note('rename', asked);
  }
  compare(...asked: unknown[]): void {
    this.calls.push(['compare', ...asked]);
  }
  archive(...asked: unknown[]): Promise<void> {
    return this._note('archive', asked);
  }
  remove(...asked: unknown[]): Promise<void> {
    return this._note('remove', asked);
  }
  private _note(what: string, asked: unknown[]): Promise<void> {
    this.calls.push([what, ...asked]);
    return Promise.resolve();
  }
}

beforeEach(() => document.body.replaceChildren());

describe('a windowed list', () => {
  class Row implements IRowView<number> {
    readonly node = h('div', { role: 'row' });
    constructor() {
      this.node.append(this._name, h('button', { tabindex: -1 }, 'do'));
    }
    update(item: number): void {
      setText(this._name, `row ${item}`);
    }
    private readonly _name = h('span');
  }

  function make(count: number): {
    list: WindowedList<number>;
    opened: number[];
    renamed: number[];
  } {
    const [opened, renamed]: [number[], number[]] = [[], []];
    const list = new WindowedList<number>({
      label: 'numbers',
      keyOf: item => item,
      heightOf: () => 20,
      nameOf: item => `row ${item}`,
      create: () => new Row(),
      onOpen: item => opened.push(item),
      onRename: item => renamed.push(item),
      onSelect: () => undefined
    });
    sized(list.node);
    list.setItems(Array.from({ length: count }, (_, i) => i));
    return { list, opened, renamed };
  }

  const rows = (): HTMLElement[] => [...document.querySelectorAll<HTMLElement>('[data-key]')];
  const row = (key: number): HTMLElement =>
    rows().find(one => one.dataset.key === `${key}`) ?? document.body;
  const active = (): string | undefined =>
    document.querySelector<HTMLElement>('[data-active]')?.dataset.key;

  it('has only the rows in the page that can be seen, and says how many there are', async () => {
    const { list } = make(10_000);
    await nextFrame();
    expect(rows().length).toBeLessThan(20);
    expect(list.node.getAttribute('aria-rowcount')).toBe('10000');
    list.node.scrollTop = 100_000;
    list.node.dispatchEvent(new Event('scroll'));
    await nextFrame();
    expect(rows().length).toBeLessThan(25);
    expect(rows().some(row => row.dataset.key === '5000')).toBe(true);
    expect(
      rows()
        .find(row => row.dataset.key === '5000')
        ?.getAttribute('aria-rowindex')
    ).toBe('5001');
  });

  it('goes by arrows, Home, End and letters; Enter opens, F2 renames', async () => {
    const { list, opened, renamed } = make(1000);
    press(list.node, 'ArrowDown');
    press(list.node, 'ArrowDown');
    await nextFrame();
    expect(active()).toBe('1');
    press(list.node, 'End');
    await nextFrame();
    expect(active()).toBe('999');
    expect(list.node.getAttribute('aria-activedescendant')).toBe(
      document.querySelector('[data-active]')?.id
    );
    press(list.node, 'Enter');
    press(list.node, 'Home');
    press(list.node, 'Enter');
    expect(opened).toEqual([999, 0]);
    press(list.node, 'F2');
    expect(renamed).toEqual([0]);
  });

  it('keeps the row that the keyboard means in the page when it is scrolled away', async () => {
    const { list } = make(1000);
    press(list.node, 'ArrowDown');
    await nextFrame();
    list.node.scrollTop = 10_000;
    list.node.dispatchEvent(new Event('scroll'));
    await nextFrame();
    expect(active()).toBe('0');
  });

  it('does not jump when rows come above the first one seen', async () => {
    const { list } = make(1000);
    await nextFrame();
    list.node.scrollTop = 4000;
    list.node.dispatchEvent(new Event('scroll'));
    await nextFrame();
    list.setItems([-2, -1, ...Array.from({ length: 1000 }, (_, i) => i)]);
    await nextFrame();
    expect(list.node.scrollTop).toBe(4040);
  });

  it('selects by keys and clicks, and a click with none of them opens', async () => {
    const { list, opened } = make(50);
    await nextFrame();
    row(2).dispatchEvent(new MouseEvent('click', { bubbles: true, ctrlKey: true }));
    row(4).dispatchEvent(new MouseEvent('click', { bubbles: true, shiftKey: true }));
    expect(list.selected).toEqual([2, 3, 4]);
    press(list.node, ' ');
    expect(list.selected).toEqual([2, 3]);
    press(list.node, 'ArrowDown', { shiftKey: true });
    expect(list.selected).toEqual([2, 3, 4, 5]);
    press(list.node, 'Escape');
    expect(list.selected).toEqual([]);
    press(list.node, 'a', { ctrlKey: true });
    expect(list.selected).toHaveLength(50);
    row(1).dispatchEvent(new MouseEvent('click', { bubbles: true }));
    expect(opened).toEqual([1]);
  });

  it('reaches the buttons of a row by ArrowRight and comes back', async () => {
    const { list } = make(5);
    list.node.focus();
    press(list.node, 'ArrowDown');
    await nextFrame();
    press(list.node, 'ArrowRight');
    expect(document.activeElement?.tagName).toBe('BUTTON');
    press(document.activeElement ?? list.node, 'ArrowLeft');
    expect(document.activeElement).toBe(list.node);
  });

  it('opens the context menu of the row that the keyboard means', async () => {
    const { list } = make(5);
    press(list.node, 'ArrowDown');
    await nextFrame();
    const heard = vi.fn();
    document.querySelector('[data-active]')?.addEventListener('contextmenu', heard);
    list.node.dispatchEvent(new MouseEvent('contextmenu', { bubbles: true, cancelable: true }));
    expect(heard).toHaveBeenCalledOnce();
  });

  it('drags the selection if the row belongs to it, else the row', async () => {
    const { list } = make(5);
    await nextFrame();
    list.select(selection => [1, 3].forEach(key => selection.toggle(key)));
    expect(list.dragged(row(3))?.experimentIds).toEqual([1, 3]);
    expect(list.dragged(row(2))?.experimentIds).toEqual([2]);
    expect(list.dragged(row(2).querySelector('button'))).toBeNull();
  });
});

describe('finished experiments', () => {
  function make(...lines: ReturnType<typeof line>[]): {
    ended: EndedList;
    operations: FakeDeeds;
  } {
    const operations = new FakeDeeds();
    const query = {
      text: '',
      status: '',
      labels: [],
      sortBy: 'newest',
      showArchived: false
    } as const;
    const noted = (): undefined => undefined;
    const ended = new EndedList({
      trans: english,
      operations,
      query,
      mayWrite: () => true,
      onQuery: noted,
      onScroll: noted
    });
    sized(ended.list.node);
    document.body.append(ended.node);
    ended.update(null, rowsOf(...lines));
    return { ended, operations };
  }

  const names = (): (string | null)[] =>
    [...document.querySelectorAll('.det-row-name')].map(one => one.textContent);

  it('never makes elements of what users wrote', async () => {
    make(line(1, { name: '<img src=x>', labels: ['<b>x</b>'], failure: '<script>' }));
    await nextFrame();
    expect(names()).toEqual(['<img src=x>']);
    expect(document.querySelector('.det-row img, .det-row b, .det-row script')).toBeNull();
  });

  it('are narrowed by a label that is clicked, and no more when it is taken away', async () => {
    const { ended } = make(line(1, { labels: ['good'] }), line(2));
    await nextFrame();
    document.querySelector<HTMLElement>('.det-row .det-chip')?.click();
    await nextFrame();
    expect(names()).toEqual(['run 1']);
    expect(ended.countText).toBe('1 of 2');
    document.querySelector<HTMLElement>('.det-filters .det-chip')?.click();
    await nextFrame();
    expect(names()).toHaveLength(2);
  });

  it('are compared, labelled, archived and deleted when several are selected', async () => {
    const { ended, operations } = make(line(1), line(2), line(3));
    await nextFrame();
    const bar = ended.node.querySelector<HTMLElement>('.det-selected') as HTMLElement;
    const choices = ended.node.querySelector<HTMLElement>('.det-filter-line') as HTMLElement;
    expect(bar.hidden).toBe(true);
    ended.list.select(selection => [1, 3].forEach(key => selection.toggle(key)));
    // In place of the choices, so that no row moves and none is covered.
    expect([bar.hidden, choices.hidden]).toEqual([false, true]);
    expect(ended.list.node.dataset.detSelected).toBe('3 1'); // for their context menu
    const buttons = [...bar.querySelectorAll('button')];
    buttons.forEach(button => button.click());
    expect(operations.calls).toEqual([
      ['compare', [3, 1]],
      ['editLabels', [3, 1]],
      ['archive', [3, 1], true],
      ['remove', [3, 1]]
    ]);
    expect([bar.hidden, choices.hidden]).toEqual([true, false]); // the last one clears
    expect(ended.list.node.dataset.detSelected).toBeUndefined();
  });

  it('give the focus back to the list when the button that had it is gone', async () => {
    const { ended } = make(line(1), line(2));
    await nextFrame();
    ended.list.select(selection => selection.toggle(1));
    const buttons = ended.node.querySelectorAll<HTMLElement>('.det-selected button');
    buttons[3]?.focus();
    ended.update([1], rowsOf(line(2))); // it was deleted
    expect(document.activeElement).toBe(ended.list.node);
  });
});

describe('running and waiting experiments', () => {
  it('do not change places under the pointer', async () => {
    const noted = (): undefined => undefined;
    const active = new ActiveList(english, new FakeDeeds(), () => true, noted);
    sized(active.list.node);
    const [one, two] = [line(1, { status: 'running' }), line(2, { status: 'running' })];
    const names = async (): Promise<(string | null)[]> => {
      await nextFrame();
      return [...document.querySelectorAll<HTMLElement>('.det-row')]
        .sort((a, b) => rowIndex(a) - rowIndex(b))
        .map(row => row.dataset.experimentId ?? null);
    };
    active.update(null, rowsOf(one, two));
    expect(await names()).toEqual(['2', '1']);
    active.list.node.dispatchEvent(new Event('pointerenter'));
    active.update([2], rowsOf(one, { ...two, status: 'paused' }));
    expect(await names()).toEqual(['2', '1']);
    active.list.node.dispatchEvent(new Event('pointerleave'));
    expect(await names()).toEqual(['1', '2']);
  });
});

describe('a row of a waiting experiment', () => {
  const remedy = {
    id: 'pause 3',
    sentence: 'pause 3',
    command: '%det_experiment pause 3',
    button: 'Pause'
  };
  const waiting = line(4, {
    status: 'queued',
    progress: 0,
    wait: 'needs 4 slots; 2 are free',
    remedies: [{ id: 'wait 2', sentence: 'wait', command: '', button: '' }, remedy],
    actions: [
      { verb: 'pause', label: 'Pause', enabled: true, why: 'Gives way.' },
      { verb: 'activate', label: 'Activate', enabled: false, why: '' },
      { verb: 'kill', label: 'Kill', enabled: true, why: 'Ends it.' }
    ]
  });

  it('that failed shows its number and the first line of its error', () => {
    const operations = { isSelected: () => false } as unknown as IEndedOperations;
    const row = new EndedRow(english, operations, () => true);
    row.update(line(12, { status: 'error', status_word: 'Error', ended_at: 9, failure: 'no\nlr' }));
    expect(row.node.querySelector('.det-row-word')?.textContent).toBe('#12 · Error · no');
  });

  it('says why it waits, and its buttons do what would start it', () => {
    const operations = new FakeDeeds();
    const row = new ActiveRow(english, operations, () => true);
    row.update(waiting);
    expect(row.node.textContent).toContain('needs 4 slots');
    row.node.querySelector<HTMLElement>('.det-row-remedies button')?.click();
    expect(operations.calls).toEqual([['carryOut', 4, remedy]]);
    row.node.querySelector<HTMLElement>('[data-verb="kill"]')?.click();
    expect(operations.calls).toContainEqual(['change', 4, 'kill']);
  });

  it('may only be looked at by those who may not change anything', () => {
    const operations = new FakeDeeds();
    const row = new ActiveRow(english, operations, () => false);
    row.update(waiting);
    row.node.querySelectorAll('button').forEach(button => button.click());
    expect(operations.calls).toEqual([]);
  });

  it('has a height that follows from what it says', () => {
    const { wait: _, ...rest } = waiting;
    const plain = activeHeight({ ...rest, wait: '' }, 300);
    expect(activeHeight(waiting, 300)).toBeGreaterThan(plain);
    const long = { ...waiting, wait: waiting.wait.repeat(4) };
    expect(activeHeight(long, 300)).toBeGreaterThan(activeHeight(long, 500));
  });
});
