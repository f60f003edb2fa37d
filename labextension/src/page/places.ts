/**
 * Where experiments are shown in this page, and what can draw them live.
 *
 *     <det-experiment key=K>card</det-experiment>   a place; alone it shows the card that it holds
 *     source   a kernel's model of experiment K     its view takes the card's place
 *     door     a kernel that knows experiments      asked for a source of a key that has none
 *
 * Saved notebooks hold places and no widgets: without a kernel the card is what is seen.
 */
export interface IView {
  node: HTMLElement;
  /** The kernel is gone: say so, and stop the clock. */
  setLost(isLost: boolean): void;
  dispose(): void;
}

export interface ISource {
  key: string;
  open(): IView;
}

/** Asks a kernel for a source. */
export type Door = (key: string) => void;

interface IShown {
  key: string;
  source: ISource;
  view: IView;
}

/** When an output is drawn again, its view moves from the old place to the new one. */
const PARKED_MS = 2000;
const LABS_HTML = 'jp-RenderedHTMLCommon';

export class Places {
  /** A place is in the page. */
  enter(place: HTMLElement): void {
    this._places.add(place);
    const key = keyOf(place);
    const parked = this._parked.get(key);
    if (parked !== undefined) {
      this._parked.delete(key);
      this._put(place, parked);
      restoreFocus(parked.view.node);
    }
    this._fill(place);
    if (!this._shown.has(place)) {
      this._sight.observe(place);
    }
  }

  leave(place: HTMLElement): void {
    this._places.delete(place);
    this._inSight.delete(place);
    this._sight.unobserve(place);
    const shown = this._shown.get(place);
    this._shown.delete(place);
    if (shown === undefined) {
      return;
    }
    shown.view.node.remove();
    this._dropParked(shown.key);
    this._parked.set(shown.key, shown);
    setTimeout(() => {
      if (this._parked.get(shown.key) === shown) {
        this._dropParked(shown.key);
      }
    }, PARKED_MS);
  }

  /** A kernel can draw an experiment. */
  add(source: ISource): void {
    this._sources.add(source);
    this._places.forEach(place => this._fill(place));
  }

  /** It cannot any more. */
  remove(source: ISource): void {
    if (this._sources.delete(source)) {
      this._places.forEach(place => this._fill(place));
    }
  }

  /** Whether a kernel draws what has this key. */
  has(key: string): boolean {
    return [...this._sources].some(source => source.key === key);
  }

  addDoor(door: Door): () => void {
    this._doors.add(door);
    this._inSight.forEach(place => door(keyOf(place)));
    return () => this._doors.delete(door);
  }

  /** Give a place the view of a source that is there, if one is. */
  private _fill(place: HTMLElement): void {
    const shown = this._shown.get(place);
    if (shown !== undefined && this._sources.has(shown.source)) {
      shown.view.setLost(false);
      return;
    }
    const source = [...this._sources].findLast(one => one.key === keyOf(place));
    if (source !== undefined) {
      shown?.view.dispose();
      this._put(place, { key: source.key, source, view: source.open() });
    } else if (shown !== undefined) {
      shown.view.setLost(true);
      this._sight.observe(place);
      this._want(place);
    }
  }

  private _put(place: HTMLElement, shown: IShown): void {
    this._sight.unobserve(place);
    this._inSight.delete(place);
    this._shown.set(place, shown);
    place.replaceChildren(shown.view.node);
    // What JupyterLab sets for tables and texts in the HTML of outputs is not meant for a view.
    place.closest(`.${LABS_HTML}`)?.classList.remove(LABS_HTML);
  }

  private _want(place: HTMLElement): void {
    this._doors.forEach(door => door(keyOf(place)));
  }

  private _dropParked(key: string): void {
    this._parked.get(key)?.view.dispose();
    this._parked.delete(key);
  }

  private readonly _places = new Set<HTMLElement>();
  private readonly _shown = new Map<HTMLElement, IShown>();
  private readonly _sources = new Set<ISource>();
  private readonly _doors = new Set<Door>();
  private readonly _parked = new Map<string, IShown>();
  /** Those without a live view that are seen. */
  private readonly _inSight = new Set<HTMLElement>();
  private readonly _sight = new IntersectionObserver(entries => {
    for (const { target, isIntersecting } of entries) {
      const place = target as HTMLElement;
      if (!isIntersecting) {
        this._inSight.delete(place);
      } else if (this._places.has(place)) {
        this._inSight.add(place);
        this._want(place);
      }
    }
  });
}

function keyOf(place: HTMLElement): string {
  return place.getAttribute('key') ?? '';
}

const blurred = { element: null as HTMLElement | null, at: 0 };

function restoreFocus(node: HTMLElement): void {
  const { element, at } = blurred;
  if (element !== null && node.contains(element) && performance.now() - at < 100) {
    element.focus({ preventScroll: true });
  }
}

const SHARED = Symbol.for('det-jupyter.places.1');
const NAME = 'det-experiment';

/** The places of this page: one object, although each widget loads this module anew. */
export function places(): Places {
  const page = globalThis as { [SHARED]?: Places };
  if (page[SHARED] === undefined) {
    const shared = new Places();
    page[SHARED] = shared;
    document.addEventListener('focusout', event => {
      blurred.element = event.target as HTMLElement;
      blurred.at = performance.now();
    });
    customElements.define(
      NAME,
      class extends HTMLElement {
        connectedCallback(): void {
          shared.enter(this);
        }
        disconnectedCallback(): void {
          shared.leave(this);
        }
      }
    );
  }
  return page[SHARED];
}
