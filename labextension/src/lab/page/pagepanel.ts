/** The base class of pages of the main area: a banner, a message, and the view. */
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { h, setHidden, setText } from '../../dom/dom.js';
import { LinkBanner } from '../connection/linkbanner.js';
import type { IDetJupyter } from '../tokens.js';
import type { Looks } from './looks.js';
import type { OpenNotebooks } from './notebooks.js';
import type { RankCommands } from './ranktools.js';

export type Drawing = typeof import('./drawing.js');

export interface IPanelOptions {
  shared: IDetJupyter;
  looks: Looks;
  notebooks: OpenNotebooks;
  commands: RankCommands;
  /** Loads the drawing core. */
  load?: () => Promise<Drawing>;
}

export abstract class Panel extends Widget {
  protected constructor(
    protected readonly _options: IPanelOptions,
    loading: string
  ) {
    super();
    this.addClass('jp-DetPage');
    const { shared } = _options;
    this._banner = new LinkBanner(shared);
    this._host = h('div.det-page-view');
    this._said = h('p.det-page-said', { role: 'status' }, loading);
    this.node.append(this._banner.node, this._said, this._host);
    shared.linkChanged.connect(this._onLink, this);
    // Subclasses are constructed before it is loaded.
    this.opened = this._load().then(drawing =>
      drawing === null ? undefined : this._open(drawing)
    );
  }

  override dispose(): void {
    if (!this.isDisposed) {
      Signal.clearData(this);
      this._banner.dispose();
      this._owned.reverse().forEach(one => one.dispose());
      super.dispose();
    }
  }

  /** Called when the connection has changed. */
  protected abstract _onLink(): void;

  /** Follow the document, and draw it with the loaded drawing core. */
  protected abstract _open(drawing: Drawing): void | Promise<void>;

  /** Dispose this with the page, the newest first. */
  protected _own<T extends { dispose(): void }>(one: T): T {
    this._owned.push(one);
    return one;
  }

  /** Load the drawing core and stored settings; `null` if the page was closed meanwhile. */
  private async _load(): Promise<Drawing | null> {
    const { load = () => import('./drawing.js'), looks, shared } = this._options;
    try {
      const [drawing] = await Promise.all([load(), looks.ready()]);
      return this.isDisposed ? null : drawing;
    } catch (error) {
      console.error(error);
      const why = error instanceof Error ? error.message : String(error);
      this._say(shared.trans.__('This page cannot be drawn: %1 Reload the browser tab.', why));
      return null;
    }
  }

  /** Show a message above the view; '' hides it. */
  protected _say(sentence: string): void {
    setText(this._said, sentence);
    setHidden(this._said, sentence === '');
  }

  /** Resolves when it follows its document, or has failed to. */
  readonly opened: Promise<void>;

  protected readonly _host: HTMLElement;
  private readonly _said: HTMLElement;
  private readonly _banner: LinkBanner;
  private readonly _owned: { dispose(): void }[] = [];
}
