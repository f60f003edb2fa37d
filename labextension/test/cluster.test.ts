// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi, type Mock } from 'vitest';

import { ClusterSection } from '../src/cluster/clustersection.js';
import type { ISlotsAndQueue, IPoolSlots } from '../src/model/state.js';
import { SlotBars } from '../src/cluster/slotbars.js';
import { english } from '../src/model/trans.js';
import { WaitNote } from '../src/cluster/waits.js';
import { agent, cluster, pool, queued, slot, wait } from './clustersamples.js';

function texts(node: Element, selector: string): string[] {
  return [...node.querySelectorAll(selector)].map(one => one.textContent);
}

afterEach(() => {
  document.body.replaceChildren();
});

describe('slots and queue', () => {
  let section: ClusterSection;

  function show(shown: ISlotsAndQueue | null): void {
    section.update(shown);
  }

  function fold(): void {
    section.node.querySelector('summary')?.click();
  }

  beforeEach(() => {
    section = new ClusterSection(english);
    document.body.append(section.node);
  });

  it('are one line while nothing of the experiment waits', () => {
    show(cluster({ num_waiting: 3, summary: '8 slots: 6 used, 2 free · 3 waiting' }));
    expect(section.node.open).toBe(false);
    expect(texts(section.node, 'summary')).toEqual([
      'Slots and queue 8 slots: 6 used, 2 free · 3 waiting'
    ]);
    expect(section.node.querySelector('.det-slot')).toBeNull();
  });

  it('open by themselves while something waits, and close after it', () => {
    show(cluster());
    show(cluster({ is_waiting: true }));
    expect(section.node.open).toBe(true);
    expect(section.node.querySelectorAll('.det-slot')).toHaveLength(8);
    show(cluster());
    expect(section.node.open).toBe(false);
  });

  it('stay as the reader has folded them, until something waits anew', () => {
    show(cluster());
    fold();
    expect(section.node.open).toBe(true);
    show(cluster({ summary: 'news' }));
    expect(section.node.open).toBe(true);
    show(cluster({ is_waiting: true }));
    fold();
    show(cluster({ is_waiting: true, summary: 'more news' }));
    expect(section.node.open).toBe(false);
    show(cluster());
    show(cluster({ is_waiting: true }));
    expect(section.node.open).toBe(true);
  });

  it('are not there while nothing is known, nor once the experiment is over', () => {
    expect(section.node.hidden).toBe(true);
    show(cluster());
    expect(section.node.hidden).toBe(false);
    show(null);
    expect(section.node.hidden).toBe(true);
  });

  it('have the front of the queue in order, each with its sentence', () => {
    const own = queued(2, {
      experiment: 'experiment 7 “digits”',
      is_own: true,
      sentence: 'needs 2 slots'
    });
    show(cluster({ is_waiting: true, queue: [queued(1), own], num_waiting: 95 }));
    expect(texts(section.node, '.det-queue-row')).toEqual([
      '1experiment 5 “bert”trial 20 · 4 slots · since 14:11needs 4 slots; 2 are free',
      '2experiment 7 “digits”this experimenttrial 21 · 4 slots · since 14:11needs 2 slots'
    ]);
    expect(texts(section.node, '.det-queue > p')).toEqual(['and 93 more']);
    const marked = [...section.node.querySelectorAll('[data-own].det-queue-row')];
    expect(marked).toHaveLength(1);
  });

  it('name the pool of each that waits when there are several', () => {
    const pools = [pool([]), pool([], { name: 'big' })];
    show(cluster({ is_waiting: true, pools, queue: [queued(1, { pool: 'big' })] }));
    expect(texts(section.node, '.det-queue-row')[0]).toContain('pool big');
  });

  it('say that nobody waits', () => {
    show(cluster({ is_waiting: true }));
    expect(texts(section.node, '.det-queue')).toEqual(['No trial waits.']);
  });

  it('show hostile names as the text they are', () => {
    const name = '<img src=x onerror=alert(1)>';
    const bars = [slot(0, { who: name, facts: [name] })];
    show(
      cluster({
        summary: name,
        is_waiting: true,
        pools: [pool([agent(name, bars, { note: name, more: name })], { name, more: name })],
        queue: [queued(1, { experiment: name, sentence: name, pool: name })]
      })
    );
    expect(section.node.querySelectorAll('img, script')).toHaveLength(0);
  });
});

describe('bars of slots', () => {
  let bars: SlotBars;

  function show(...pools: IPoolSlots[]): void {
    bars.update(pools);
  }

  function bar(key: string): HTMLElement {
    const found = bars.node.querySelector<HTMLElement>(`[data-slot="${key}"]`);
    if (found === null) {
      throw new Error(`no bar ${key}`);
    }
    return found;
  }

  function press(key: string): string | null {
    document.activeElement?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    return document.activeElement?.getAttribute('data-slot') ?? null;
  }

  function tip(): string[] | null {
    const node = bars.node.querySelector<HTMLElement>('.det-tip');
    return node === null || node.hidden ? null : texts(node, 'div');
  }

  const eight = (name: string): ReturnType<typeof agent> =>
    agent(
      name,
      Array.from({ length: 8 }, (_, i) => slot(i))
    );

  beforeEach(() => {
    bars = new SlotBars(english);
    document.body.append(bars.node);
  });

  it('tell each state by a word and a shape of its own', () => {
    const own = { is_own: true, who: 'this experiment' };
    show(
      pool([
        agent('local', [
          slot(0, own),
          slot(1, { ...own, state: 'leaving' }),
          slot(2),
          slot(3, { state: 'leaving' }),
          slot(4, { state: 'occupied', who: 'train.py' }),
          slot(5, { state: 'disabled', who: 'disabled' }),
          slot(6, { state: 'free', who: 'free' })
        ])
      ])
    );
    expect(texts(bars.node, '.det-slot')).toEqual([
      '0this experiment',
      '1leavingthis experiment',
      '2resnet',
      '3leavingresnet',
      '4occupiedtrain.py',
      '5disabled',
      '6free'
    ]);
    const shapes = [...bars.node.querySelectorAll('.det-slot path')].map(path =>
      path.getAttribute('d')
    );
    expect(new Set(shapes).size).toBe(6); // leaving looks the same, whoever it is
  });

  it('are read aloud with all that is known of them', () => {
    show(pool([eight('local')]));
    expect(bar('0.0.3').getAttribute('aria-label')).toBe(
      'local, slot 3, in use, experiment 3 “resnet”'
    );
  });

  it('have a title for each pool when there are several', () => {
    show(pool([eight('local')]));
    expect(bars.node.querySelector<HTMLElement>('.det-pool > .det-line')?.hidden).toBe(true);
    show(pool([eight('left')]), pool([], { name: 'big', counts: 'no slots', rules: 'fair share' }));
    expect(texts(bars.node, '.det-pool > .det-line')).toEqual([
      'Pool default8 slots: 6 used, 2 free · by priority',
      'Pool bigno slots · fair share'
    ]);
    expect(bars.node.querySelector<HTMLElement>('.det-pool > .det-line')?.hidden).toBe(false);
  });

  it('say what was left out, and which agent is gone', () => {
    const gone = agent('far', [], { is_connected: false, note: 'not connected' });
    show(
      pool([agent('near', [], { more: 'and 936 more slots' }), gone], { more: '9 more agents' })
    );
    expect(texts(bars.node, '.det-agent')).toEqual(['nearand 936 more slots', 'farnot connected']);
    expect(texts(bars.node, '.det-pool > p')).toEqual(['9 more agents']);
  });

  it('are one stop for the Tab key, and are walked through with arrow keys', () => {
    show(pool([eight('left'), agent('right', [slot(0), slot(1)])]));
    expect(bars.node.querySelectorAll('[tabindex="0"]')).toHaveLength(1);
    bar('0.0.0').focus();
    expect(press('ArrowRight')).toBe('0.0.1');
    expect(press('ArrowRight')).toBe('0.0.2');
    expect(press('ArrowDown')).toBe('0.1.1');
    expect(press('ArrowDown')).toBe('0.1.1');
    expect(press('ArrowUp')).toBe('0.0.1');
    expect(press('End')).toBe('0.1.1');
    expect(press('Home')).toBe('0.0.0');
    expect(press('ArrowLeft')).toBe('0.0.0');
    expect(bars.node.querySelectorAll('[tabindex="0"]')).toHaveLength(1);
  });

  it('tell all that is known of the one with the focus, until Escape is pressed', () => {
    show(pool([eight('local')]));
    expect(tip()).toBeNull();
    bar('0.0.2').focus();
    expect(tip()).toEqual(['slot 2', 'in use', 'experiment 3 “resnet”']);
    press('Escape');
    expect(tip()).toBeNull();
  });

  it('tell all that is known of the one under the pointer', () => {
    show(pool([eight('local')]));
    bar('0.0.5').dispatchEvent(new Event('pointerover', { bubbles: true }));
    expect(tip()?.[0]).toBe('slot 5');
    bars.node.dispatchEvent(new Event('pointerleave'));
    expect(tip()).toBeNull();
  });

  it('keep the focus when they change', () => {
    show(pool([eight('local')]));
    bar('0.0.2').focus();
    show(pool([agent('local', [slot(0), slot(1), slot(2, { facts: ['slot 2', 'free'] })])]));
    expect(document.activeElement).toBe(bar('0.0.2'));
    expect(tip()).toEqual(['slot 2', 'free']);
  });
});

describe('a wait', () => {
  let note: WaitNote;
  let asked: Mock<(command: string) => Promise<void>>;

  function doButton(): HTMLElement {
    return note.node.querySelector('.det-typed button') as HTMLElement;
  }

  function copyButton(): HTMLElement {
    return note.node.querySelector('[aria-label^=Copy]') as HTMLElement;
  }

  beforeEach(() => {
    asked = vi.fn<(command: string) => Promise<void>>().mockResolvedValue(undefined);
    note = new WaitNote({ trans: english, onCommand: asked, slowHint: 'Busy.' });
    document.body.append(note.node);
  });

  afterEach(() => {
    vi.unstubAllGlobals();
  });

  it('has its sentence, its expected start, and what would end it', () => {
    note.update(wait());
    expect(texts(note.node, 'p, li')).toEqual([
      'needs 4 slots; 2 of 8 are free',
      'expected to start at 14:34 (14:24 to 14:54)',
      'wait until experiment 3 ends',
      'pause experiment 3 Pause%det_experiment pause 3Copy command',
      ''
    ]);
    expect(note.node.hidden).toBe(false);
    note.update(null);
    expect(note.node.hidden).toBe(true);
  });

  it('carries a remedy out, once at a time', async () => {
    note.update(wait());
    expect(doButton().getAttribute('aria-description')).toBe('pause experiment 3');
    doButton().click();
    doButton().click();
    expect(asked.mock.calls).toEqual([['pause 3']]);
    expect(doButton().getAttribute('aria-busy')).toBe('true');
    await vi.waitFor(() => expect(doButton().hasAttribute('aria-busy')).toBe(false));
    expect(note.node.querySelector<HTMLElement>('[role=alert]')?.hidden).toBe(true);
  });

  it('shows beside the button why a remedy was refused', async () => {
    asked.mockRejectedValue(new Error('experiment 3 is over'));
    note.update(wait());
    doButton().click();
    await vi.waitFor(() =>
      expect(texts(note.node, '[role=alert]')).toEqual(['experiment 3 is over'])
    );
    (note.node.querySelector('[aria-label=Dismiss]') as HTMLElement).click();
    expect(note.node.querySelector<HTMLElement>('[role=alert]')?.hidden).toBe(true);
  });

  it('has no button for what only the reader can do', () => {
    note.update(
      wait({
        remedies: [
          { id: 'end_processes left pids=[9]', sentence: 'end it', command: '!kill 9', button: '' }
        ]
      })
    );
    expect(texts(note.node, 'li button')).toEqual(['Copy command']);
  });

  it('copies a command', async () => {
    const writeText = vi.fn<(text: string) => Promise<void>>().mockResolvedValue(undefined);
    vi.stubGlobal('navigator', { clipboard: { writeText } });
    note.update(wait());
    copyButton().click();
    await vi.waitFor(() => expect(texts(note.node, '[role=status]')).not.toEqual(['']));
    expect(writeText.mock.calls).toEqual([['%det_experiment pause 3']]);
    expect(texts(note.node, '[role=status]')).toEqual(['Copied: %det_experiment pause 3']);
  });

  it('selects a command where there is no clipboard', async () => {
    vi.stubGlobal('navigator', {});
    note.update(wait());
    copyButton().click();
    await Promise.resolve();
    expect(document.getSelection()?.toString()).toBe('%det_experiment pause 3');
    expect(texts(note.node, '[role=status]')[0]).toMatch(/^Selected:/);
  });

  it('leaves its buttons alone when only the estimate has changed', () => {
    note.update(wait());
    const button = copyButton();
    button.focus();
    note.update(wait({ expected: 'expected to start at 14:35' }));
    expect(document.activeElement).toBe(button);
  });
});
