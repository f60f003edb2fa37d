/** The panel on the left: its sections, and what of them is kept. */
import { SidePanel } from '@jupyterlab/ui-components';
import { MessageLoop } from '@lumino/messaging';
import { AccordionPanel, Panel, Widget } from '@lumino/widgets';

import { LinkBanner } from '../connection/banner.js';
import type { IDetJupyter } from '../tokens.js';
import type { Memory } from './memory.js';
import type { Section } from './section.js';

const SIZES = [3, 3, 5, 2]; // of the height, at first
const LEAST = 0.25; // of the height, for one that is opened for the first time

export class SidebarPanel extends SidePanel {
  /** @param _sections - From top to bottom; the last one is closed at first. */
  constructor(
    det: IDetJupyter,
    private readonly _sections: readonly Section[],
    private readonly _memory: Memory
  ) {
    super({ header: new Panel() });
    if (!(this.content instanceof AccordionPanel)) {
      throw new Error('a SidePanel has another content than it had');
    }
    this._accordion = this.content;
    this.id = 'det-jupyter-sidebar';
    this.addClass('jp-DetSidebar');
    this._banner = new LinkBanner(det);
    const banner = new Widget({ node: this._banner.node });
    this.header.addWidget(banner);
    // The layout of a SidePanel does not hear of it when its header grows or shrinks.
    const { UnknownSize } = Widget.ResizeMessage;
    this._resized = new ResizeObserver(() => MessageLoop.postMessage(this._accordion, UnknownSize));
    this._resized.observe(banner.node);
    _sections.forEach(section => this.addWidget(section));
    this._accordion.collapse(_sections.length - 1);
    this._setSizes(SIZES);
    document.addEventListener('visibilitychange', this._onVisibility);
  }

  override dispose(): void {
    if (!this.isDisposed) {
      document.removeEventListener('visibilitychange', this._onVisibility);
      this._resized.disconnect();
      this._banner.dispose();
      this._memory.dispose();
      super.dispose();
    }
  }

  /** Say beside the title of a section how many are in it. */
  setCount(section: Section, text: string): void {
    section.setCount(this._accordion.titles[this._sections.indexOf(section)], text);
  }

  /** Open the sections as they were; from now on, changes are kept. */
  restore(): void {
    const { open, sizes } = this._memory.kept;
    this._sections.forEach((_, place) => {
      if (open[place] === false) {
        this._accordion.collapse(place);
      } else {
        this._accordion.expand(place);
      }
    });
    this._setSizes(sizes.length === this._sections.length ? sizes : SIZES);
    this._accordion.expansionToggled.connect(this._onToggled, this);
    this._accordion.handleMoved.connect(this._keep, this);
  }

  protected override onAfterShow(): void {
    this._look();
  }

  protected override onAfterHide(): void {
    this._look();
  }

  private _setSizes(sizes: readonly number[]): void {
    const shares = this._sections.map(({ isHidden }, i) => (isHidden ? 0 : (sizes[i] as number)));
    this._accordion.setRelativeSizes(shares);
  }

  /** A section that was never open gets a part of the height, too. */
  private _onToggled(_: AccordionPanel, place: number): void {
    const sizes = this._accordion.relativeSizes();
    if (this._sections[place]?.isHidden === false && (sizes[place] ?? 0) < LEAST) {
      sizes[place] = LEAST;
      this._accordion.setRelativeSizes(sizes);
    }
    this._keep();
  }

  private _keep(): void {
    this._memory.keep({
      open: this._sections.map(section => !section.isHidden),
      sizes: this._accordion.relativeSizes()
    });
  }

  private _look(): void {
    this._sections.forEach(section => section.look());
  }

  private readonly _onVisibility = (): void => this._look();
  private readonly _accordion: AccordionPanel;
  private readonly _banner: LinkBanner;
  private readonly _resized: ResizeObserver;
}
