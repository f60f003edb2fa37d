/** Our list of the sidebar and JupyterLab's WindowedList with the same rows; see windowed_list.py. */
import { ObservableList } from '@jupyterlab/observables';
import { WindowedList, WindowedListModel } from '@jupyterlab/ui-components/lib/components/windowedlist';
import { MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { WindowedList as OurList } from '../../labextension/src/lab/sidebar/list.js';

interface IItem {
  id: number;
  isHigh: boolean;
}

interface IList {
  /** Add a row at the top. */
  insert(item: IItem): void;
  showLast(): void;
  readonly scroller: HTMLElement;
  readonly created: () => number;
}

const WIDTH = 300;
const HEIGHT = 700;
const TIMEOUT_MS = 30_000;
const WATCHED = 3; // the row whose place is compared, near the end

const heightOf = (item: IItem): number => (item.isHigh ? 118 : 74);
const itemsOf = (count: number): IItem[] =>
  Array.from({ length: count }, (_, i) => ({ id: count - i, isHigh: i % 7 === 0 }));

function rowView(): { node: HTMLElement; update(item: IItem): void } {
  const node = document.createElement('div');
  node.className = 'row';
  node.innerHTML = '<b></b><progress></progress><button>Pause</button><button>Kill</button>';
  const title = node.firstChild as HTMLElement;
  return {
    node,
    update: ({ id }) => {
      title.textContent = `experiment ${id}`;
    }
  };
}

function makeOurs(host: HTMLElement, items: IItem[]): IList {
  let created = 0;
  const list = new OurList<IItem>({
    label: 'Experiments',
    keyOf: ({ id }) => id,
    heightOf,
    nameOf: ({ id }) => `experiment ${id}`,
    create: () => {
      created += 1;
      return rowView();
    },
    onOpen: () => undefined
  });
  host.append(list.node);
  list.setItems(items);
  return {
    insert: item => list.setItems([item, ...items]),
    showLast: () => list.activate(items.length - 1),
    scroller: list.node,
    created: () => created
  };
}

function makeTheirs(host: HTMLElement, values: IItem[]): IList {
  const items = new ObservableList<IItem>({ values });
  const widgets = new Map<number, Widget>();
  class Model extends WindowedListModel {
    estimateWidgetSize = (index: number): number => heightOf(items.get(index));
    widgetRenderer = (index: number): Widget => {
      const item = items.get(index);
      let widget = widgets.get(item.id);
      if (widget === undefined) {
        const view = rowView();
        view.update(item);
        view.node.style.height = `${heightOf(item)}px`;
        widget = new Widget({ node: view.node });
        widgets.set(item.id, widget);
      }
      return widget;
    };
  }
  const list = new WindowedList({ model: new Model({ itemsList: items, overscanCount: 4 }) });
  Widget.attach(list, host);
  MessageLoop.sendMessage(list, new Widget.ResizeMessage(WIDTH, HEIGHT));
  return {
    insert: item => items.insert(0, item),
    showLast: () => void list.scrollToItem(values.length - 1, 'end').catch(() => undefined),
    scroller: list.outerNode,
    created: () => widgets.size
  };
}

const pause = (ms: number): Promise<void> => new Promise(done => setTimeout(done, ms));
const frame = (): Promise<void> =>
  new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));

function rowOf(host: HTMLElement, id: number): Element | undefined {
  const rows = [...host.querySelectorAll('.row')];
  return rows.find(row => row.firstChild?.textContent === `experiment ${id}`);
}

/** Milliseconds until a row is in the page. */
async function msUntilRow(host: HTMLElement, id: number, started: number): Promise<number> {
  while (rowOf(host, id) === undefined) {
    if (performance.now() - started > TIMEOUT_MS) {
      return NaN;
    }
    await frame();
  }
  return performance.now() - started;
}

async function measure(
  make: (host: HTMLElement, items: IItem[]) => IList,
  count: number
): Promise<Record<string, number>> {
  const host = document.createElement('div');
  host.className = 'host';
  document.body.append(host);
  let started = performance.now();
  const list = make(host, itemsOf(count));
  const firstMs = await msUntilRow(host, count, started);
  started = performance.now();
  list.showLast();
  const lastMs = await msUntilRow(host, 1, started);
  await pause(3500); // JupyterLab's corrects the target of a scroll for so long
  const top = rowOf(host, WATCHED)?.getBoundingClientRect().top ?? NaN;
  list.insert({ id: count + 1, isHigh: true });
  await pause(500);
  const moved = (rowOf(host, WATCHED)?.getBoundingClientRect().top ?? NaN) - top;
  return { firstMs, lastMs, created: list.created(), movedPx: moved };
}

Object.assign(window, {
  measureOurs: (count: number) => measure(makeOurs, count),
  measureTheirs: (count: number) => measure(makeTheirs, count)
});
