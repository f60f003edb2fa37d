// @vitest-environment happy-dom
import { beforeEach, expect, it } from 'vitest';

import { Settings } from '../src/model/viewsettings.js';
import { english } from '../src/model/trans.js';
import { TabFrame } from '../src/tabs/frame.js';
import type { ITab } from '../src/tabs/tab.js';
import { state } from './samples.js';

let said: string[];

function tab(id: string): ITab {
  return {
    id,
    label: id.toUpperCase(),
    open: host => {
      host.append(`panel ${id}`);
      said.push(`${id} opened`);
      return {
        update: ({ as_of }) => said.push(`${id} updated ${as_of}`),
        setShown: isShown => said.push(`${id} ${isShown ? 'shown' : 'hidden'}`),
        dispose: () => said.push(`${id} disposed`)
      };
    }
  };
}

function frame(settings = new Settings()): TabFrame {
  const made = new TabFrame(english, settings, [tab('one'), tab('two'), tab('three')]);
  document.body.replaceChildren(made.node);
  return made;
}

const tabs = (): HTMLElement[] => [...document.querySelectorAll<HTMLElement>('[role=tab]')];
const press = (key: string): void => {
  document.activeElement?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
};

beforeEach(() => {
  said = [];
});

it('builds a panel when it is opened, and tells of states only the one that is shown', () => {
  const made = frame();
  expect(said).toEqual([]);
  made.update(state({ as_of: 1 }));
  expect(said).toEqual(['one opened', 'one shown', 'one updated 1']);
  said = [];
  tabs()[1]?.click();
  made.update(state({ as_of: 2 }));
  tabs()[0]?.click();
  expect(said).toEqual([
    'one hidden',
    'two opened',
    'two shown',
    'two updated 1',
    'two updated 2',
    'two hidden',
    'one shown',
    'one updated 2'
  ]);
});

it('lets a panel rest while the view is out of sight', () => {
  const made = frame();
  made.update(state({ as_of: 1 }));
  said = [];
  made.setVisible(true);
  made.setVisible(false);
  made.setVisible(false);
  tabs()[1]?.click();
  expect(said.slice(0, 4)).toEqual(['one hidden', 'one hidden', 'two opened', 'two hidden']);
});

it('moves by arrow keys, around the ends, with one tab in the order of focus', () => {
  frame().update(state());
  tabs()[0]?.focus();
  const walk = ['ArrowRight', 'ArrowLeft', 'ArrowLeft', 'ArrowRight', 'End', 'Home'].map(key => {
    press(key);
    expect(tabs().filter(one => one.tabIndex === 0)).toEqual([document.activeElement]);
    expect(document.activeElement?.getAttribute('aria-selected')).toBe('true');
    return document.activeElement?.textContent;
  });
  expect(walk).toEqual(['TWO', 'ONE', 'THREE', 'ONE', 'THREE', 'ONE']);
});

it('names each panel by its tab and shows one', () => {
  frame().update(state());
  tabs()[1]?.click();
  const panels = [...document.querySelectorAll<HTMLElement>('[role=tabpanel]')];
  expect(panels.map(one => one.hidden)).toEqual([true, false, true]);
  expect(panels.map(one => one.getAttribute('aria-labelledby'))).toEqual(tabs().map(one => one.id));
  expect(tabs().map(one => one.getAttribute('aria-controls'))).toEqual(panels.map(one => one.id));
});

it('remembers the tab in the settings, and follows those of another window', () => {
  const settings = new Settings({ tab: 'two' });
  frame(settings).update(state());
  expect(said[0]).toBe('two opened');
  tabs()[2]?.click();
  expect(settings.value.tab).toBe('three');
  settings.load({ tab: 'gone in this version' });
  expect(tabs()[0]?.getAttribute('aria-selected')).toBe('true');
});

it('ends the panels that were opened', () => {
  const made = frame();
  made.update(state());
  said = [];
  made.dispose();
  made.dispose();
  expect(said).toEqual(['one disposed']);
});
