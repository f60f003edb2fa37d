/** Drags experiments into a notebook, where they become a cell that shows them. */
import type { NotebookPanel } from '@jupyterlab/notebook';
import { MimeData } from '@lumino/coreutils';
import { Drag } from '@lumino/dragdrop';

import { h } from '../../dom/dom.js';
import type { ITrans } from '../../model/trans.js';
import { cellsFor, lineFor } from './cells.js';

const CELLS = 'application/vnd.jupyter.cells';
const FAR = 5; // pixels; shorter moves are clicks

export interface IDragged {
  experimentIds: number[];
  name: string;
}

/** The experiments that are dragged from an element; `null`: none. */
export type FindDragged = (element: EventTarget | null) => IDragged | null;

export interface IDragPlaces {
  trans: ITrans;
  /** The current notebook, for the content of the dragged cell. */
  notebook: () => NotebookPanel | null;
}

export function makeDraggable(node: HTMLElement, find: FindDragged, places: IDragPlaces): void {
  node.addEventListener('pointerdown', event => {
    const dragged = event.button === 0 ? find(event.target) : null;
    if (dragged !== null) {
      waitForMove(event, () => start(event, dragged, node, places));
    }
  });
}

function waitForMove(from: PointerEvent, onFar: () => void): void {
  const done = new AbortController();
  const { signal } = done;
  const onMove = (event: PointerEvent): void => {
    if (Math.hypot(event.clientX - from.clientX, event.clientY - from.clientY) > FAR) {
      done.abort();
      onFar();
    }
  };
  document.addEventListener('pointermove', onMove, { signal, capture: true });
  document.addEventListener('pointerup', () => done.abort(), { signal, capture: true });
  document.addEventListener('pointercancel', () => done.abort(), { signal, capture: true });
}

function start(
  from: PointerEvent,
  { experimentIds, name }: IDragged,
  node: HTMLElement,
  { trans, notebook }: IDragPlaces
): void {
  const line = lineFor(experimentIds);
  const count = experimentIds.length;
  const text = count === 1 ? name : trans._n('%1 experiment', '%1 experiments', count);
  const mimeData = new MimeData();
  mimeData.setData(CELLS, cellsFor(line, notebook()));
  mimeData.setData('text/plain', line);
  const dragImage = h('div.jp-DetDragImage', {}, h('b', {}, text), h('code', {}, line));
  const drag = new Drag({
    mimeData,
    dragImage,
    proposedAction: 'copy',
    supportedActions: 'copy',
    source: node
  });
  // Ignore the click at the end of a drag.
  const stop = (event: Event): void => {
    event.preventDefault();
    event.stopPropagation();
  };
  document.addEventListener('click', stop, { capture: true, once: true });
  void drag.start(from.clientX, from.clientY).then(() => {
    drag.dispose();
    setTimeout(() => document.removeEventListener('click', stop, { capture: true }));
  });
}
