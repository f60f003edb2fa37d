/** Handles the keys of a list: arrows and typing move between rows, ArrowRight to a row's buttons. */
import { placeAfter, TypeAhead, type Selection } from './keys.js';

/** The part of a list that the keyboard uses. */
interface IKeyed {
  readonly node: HTMLElement;
  readonly isMultiple: boolean;
  readonly selection: Selection;
  readonly count: number;
  readonly keys: number[];
  readonly activePlace: number;
  readonly activeRow: HTMLElement | undefined;
  readonly firstSeen: number;
  readonly pageSize: number;
  activate(place: number): void;
  openActive(): void;
  renameActive(): boolean;
  keyAt(place: number): number;
  nameAt(place: number): string;
  select(change: (selection: Selection) => void): void;
}

export function listenToKeys(list: IKeyed): void {
  const typed = new TypeAhead();
  list.node.addEventListener('keydown', event => {
    const isHandled =
      event.target === list.node ? onListKey(list, typed, event) : onControlKey(list, event);
    if (isHandled) {
      event.preventDefault();
      event.stopPropagation();
    }
  });
  list.node.addEventListener('focusin', ({ target }) => {
    if (target === list.node && list.activePlace < 0 && list.node.matches(':focus-visible')) {
      list.activate(list.firstSeen);
    }
  });
}

function onListKey(list: IKeyed, typed: TypeAhead, event: KeyboardEvent): boolean {
  const { key, altKey } = event;
  const place = list.activePlace;
  if (event.ctrlKey || event.metaKey) {
    if (key === 'a' && list.isMultiple) {
      list.select(({ keys }) => list.keys.forEach(one => keys.add(one)));
      return true;
    }
    return false;
  }
  if (altKey) {
    return false;
  }
  if (key === 'Escape' && list.selection.keys.size > 0) {
    list.select(selection => selection.clear());
    return true;
  }
  if (place >= 0 && key === ' ' && list.isMultiple && !typed.isTyping) {
    list.select(selection => selection.toggle(list.keyAt(place)));
    return true;
  }
  if (place >= 0 && key === 'Enter') {
    list.openActive();
    return true;
  }
  if (key === 'F2') {
    return list.renameActive();
  }
  if (place >= 0 && key === 'ArrowRight') {
    return focusControl(list, 0);
  }
  return key.length === 1 ? type(list, typed, key) : move(list, key, event.shiftKey);
}

function type(list: IKeyed, typed: TypeAhead, letter: string): boolean {
  const nameAt = (place: number): string => list.nameAt(place);
  const found = typed.type(letter, nameAt, list.activePlace, list.count);
  list.activate(found); // -1 does nothing
  return true;
}

function move(list: IKeyed, key: string, isShifted: boolean): boolean {
  const place = list.activePlace;
  const next = placeAfter(key, place, list.count, list.pageSize);
  if (next === null) {
    return false;
  }
  list.activate(next);
  if (isShifted && list.isMultiple) {
    list.select(selection => {
      if (selection.keys.size === 0 && place >= 0) {
        selection.toggle(list.keyAt(place));
      }
      selection.extend(list.keyAt(next), list.keys);
    });
  }
  return true;
}

/** Left and right move between the buttons of a row, and back to the list. */
function onControlKey(list: IKeyed, { key }: KeyboardEvent): boolean {
  const place = controlsOf(list).findIndex(one => one === document.activeElement);
  switch (key) {
    case 'ArrowLeft':
      if (place > 0) {
        return focusControl(list, place - 1);
      }
      list.node.focus();
      return true;
    case 'ArrowRight':
      return focusControl(list, place + 1);
    case 'Escape':
      list.node.focus();
      return true;
    case 'ArrowUp':
    case 'ArrowDown':
      list.node.focus();
      return move(list, key, false);
    default:
      return false;
  }
}

function focusControl(list: IKeyed, place: number): boolean {
  const control = controlsOf(list)[place];
  control?.focus();
  return control !== undefined;
}

function controlsOf(list: IKeyed): HTMLElement[] {
  const all = [...(list.activeRow?.querySelectorAll<HTMLElement>('button, input') ?? [])];
  return all.filter(one => one.closest('[hidden]') === null);
}
