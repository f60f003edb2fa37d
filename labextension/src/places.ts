/**
 * The places of this page where experiments are shown, and the sources that draw them live.
 *
 *     <det-experiment key=K>card</det-experiment>   a place; without a source it shows its card
 *     source   follows experiment K                 its view replaces the card
 *     door     a kernel or server                   makes a source of a key on request
 *
 * Sources and doors have a rank: 0 for a kernel and its widgets, a higher number for a server,
 * which exists longer. The source with the highest rank draws. Saved notebooks contain places and
 * no widgets.
 */
export interface IView {
  node: HTMLElement;
  /** Mark the view as not live, as its source is gone. */
  setLost(isLost: boolean): void;
  dispose(): void;
}

export interface ISource {
  key: string;
  rank?: number;
  open(): IView;
  /** Called with whether this source draws its key; others need no states. */
  setUsed?(isUsed: boolean): void;
}

/** Requests a source; returns true if one will be added. Idempotent. */
type Door = (key: string) => unknown;

interface IShown {
  key: string;
  source: ISource;
  view: IView;
}

/** How long the view of a removed place is kept, to be moved to the output that is drawn again. */
const PARKED_MS = 2000;
/** How long a place waits for a requested source of a higher rank before it shows another one. */
const HELD_MS = 1500;
const LABS_HTML = 'jp-RenderedHTMLCommon';

export class Places {
  /** Register a place that was added to the page. */
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
    this._sight.observe(place);
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

  /** Add a source. */
  add(source: ISource): void {
    this._sources.add(source);
    this._refill(source.key);
  }

  /** Remove a source. */
  remove(source: ISource): void {
    if (this._sources.delete(source)) {
      this._refill(source.key);
    }
  }

  /** Whether there is a source of this key. */
  has(key: string): boolean {
    return this._best(key) !== undefined;
  }

  /** Request sources from `door` for visible places without one of its rank; returns what ends that. */
  addDoor(door: Door, rank = 0): () => void {
    this._doors.set(door, rank);
    this._inSight.forEach(place => {
      if (rank > this._rankAt(place)) {
        door(keyOf(place));
      }
    });
    return () => this._doors.delete(door);
  }

  private _refill(key: string): void {
    const best = this._best(key);
    for (const source of this._sources) {
      if (source.key === key) {
        source.setUsed?.(rankOf(source) === rankOf(best));
      }
    }
    this._places.forEach(place => {
      if (keyOf(place) === key) {
        this._fill(place);
      }
    });
  }

  /** The newest source of the highest rank. */
  private _best(key: string): ISource | undefined {
    let best: ISource | undefined;
    for (const source of this._sources) {
      if (source.key === key && rankOf(source) >= rankOf(best)) {
        best = source;
      }
    }
    return best;
  }

  /** Give a place the view of the best source, if there is one. */
  private _fill(place: HTMLElement): void {
    const key = keyOf(place);
    const shown = this._shown.get(place);
    const isLive = shown !== undefined && this._sources.has(shown.source);
    const best = this._best(key);
    if (isLive && rankOf(shown.source) >= rankOf(best)) {
      shown.view.setLost(false);
    } else if (best !== undefined && !this._isHeld(best)) {
      shown?.view.dispose();
      this._put(place, { key, source: best, view: best.open() });
    } else if (shown !== undefined && !isLive) {
      shown.view.setLost(true);
      this._want(place);
    }
  }

  /** Whether a place waits for a requested source of a higher rank than this one's. */
  private _isHeld({ key, rank }: ISource): boolean {
    if (!this._ask(key, rank ?? 0)) {
      return false;
    }
    const now = performance.now();
    let until = this._heldUntil.get(key);
    if (until === undefined) {
      until = now + HELD_MS;
      this._heldUntil.set(key, until);
      setTimeout(() => this._refill(key), HELD_MS + 1);
    }
    return now < until;
  }

  private _put(place: HTMLElement, shown: IShown): void {
    this._heldUntil.delete(shown.key);
    this._shown.set(place, shown);
    place.replaceChildren(shown.view.node);
    // Excludes views from JupyterLab's styles of HTML outputs.
    place.closest(`.${LABS_HTML}`)?.classList.remove(LABS_HTML);
  }

  /** Request a source of a higher rank than the one that draws, if any. */
  private _want(place: HTMLElement): void {
    this._ask(keyOf(place), this._rankAt(place));
  }

  /** The rank of the source that draws in a place. */
  private _rankAt(place: HTMLElement): number {
    const source = this._shown.get(place)?.source;
    return source !== undefined && this._sources.has(source) ? rankOf(source) : NO_RANK;
  }

  /** Request a source from doors of a higher rank, the highest first, until one accepts. */
  private _ask(key: string, rank: number): boolean {
    const doors = [...this._doors].filter(([, own]) => own > rank);
    doors.sort(([, a], [, b]) => b - a);
    return doors.some(([door]) => door(key) === true);
  }

  private _dropParked(key: string): void {
    this._parked.get(key)?.view.dispose();
    this._parked.delete(key);
  }

  private readonly _places = new Set<HTMLElement>();
  private readonly _shown = new Map<HTMLElement, IShown>();
  private readonly _sources = new Set<ISource>();
  private readonly _doors = new Map<Door, number>();
  /** Until when places of a key wait for a better source, by `performance.now()`. */
  private readonly _heldUntil = new Map<string, number>();
  private readonly _parked = new Map<string, IShown>();
  /** The visible places. */
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

const NO_RANK = -1;

function rankOf(source: ISource | undefined): number {
  return source === undefined ? NO_RANK : (source.rank ?? 0);
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
export const NAME = 'det-experiment';

/** The registry of this page: one object, although each widget loads this module again. */
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
